// SPDX-License-Identifier: Apache-2.0
// Sixty threads that work and make garbage; each word is answered when every thread was seen to go on.
import java.io.*;
import java.util.concurrent.atomic.*;

public class Spin {
	static final int THREADS = 60;
	static final AtomicIntegerArray done = new AtomicIntegerArray(THREADS);

	static void work(int i) {
		try {
			for (;;) {
				byte[] garbage = new byte[20000];
				garbage[i] = 1;
				done.addAndGet(i, garbage[i]);
				Thread.sleep(5);
			}
		} catch (InterruptedException end) {
			return;
		}
	}

	static void allGoOn() throws InterruptedException {
		int[] before = new int[THREADS];
		for (int i = 0; i < THREADS; i++)
			before[i] = done.get(i);
		for (int i = 0; i < THREADS; i++)
			while (done.get(i) == before[i])
				Thread.sleep(1);
	}

	public static void main(String[] args) throws Exception {
		for (int i = 0; i < THREADS; i++) {
			final int own = i;
			Thread t = new Thread(() -> work(own), "worker-" + i);
			t.setDaemon(true);
			t.start();
		}
		BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
		StringBuilder words = new StringBuilder();
		System.out.println("ready");
		for (String line; (line = in.readLine()) != null;) {
			allGoOn();
			if (Thread.activeCount() != THREADS + 1)
				throw new IllegalStateException(Thread.activeCount() + " threads");
			System.out.println(words.append(line).append(' '));
		}
	}
}
