// SPDX-License-Identifier: Apache-2.0

// Goroutines that never call anything (the runtime stops them by its own signals), a ticker, timers, a ring of channels
// with a token in it, garbage; each word is answered when all of them were seen to go on.
package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"time"
)

var spins [2]int64
var ticks, timers, laps int64
var garbage atomic.Value

func spin(count *int64) {
	for {
		atomic.AddInt64(count, 1)
	}
}

func tick() {
	for range time.NewTicker(2 * time.Millisecond).C {
		atomic.AddInt64(&ticks, 1)
		garbage.Store(make([]byte, 200_000))
	}
}

func again() {
	atomic.AddInt64(&timers, 1)
	time.AfterFunc(3*time.Millisecond, again)
}

func ring(size int) {
	first := make(chan int)
	last := first
	for i := 0; i < size; i++ {
		next := make(chan int)
		go func(from, to chan int) {
			for token := range from {
				to <- token + 1
			}
		}(last, next)
		last = next
	}
	first <- 0
	for token := range last {
		if token%size != 0 {
			panic(fmt.Sprintf("the token is %d", token))
		}
		atomic.AddInt64(&laps, 1)
		first <- token
	}
}

func allGoOn() {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	collected := stats.NumGC
	for _, count := range []*int64{&spins[0], &spins[1], &ticks, &timers, &laps} {
		for before := atomic.LoadInt64(count); atomic.LoadInt64(count) == before; {
			time.Sleep(time.Millisecond)
		}
	}
	for ; stats.NumGC == collected; runtime.ReadMemStats(&stats) {
		time.Sleep(time.Millisecond)
	}
}

func main() {
	runtime.GOMAXPROCS(2)
	go tick()
	go again()
	go ring(50)
	for i := range spins {
		go spin(&spins[i])
	}
	words := make(chan string, 100) // what was told waits in it
	allGoOn()
	fmt.Println("ready")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		allGoOn()
		words <- in.Text()
		told := make([]string, len(words))
		for i := range told {
			told[i] = <-words
			words <- told[i]
		}
		fmt.Println(strings.Join(told, " "))
	}
}
