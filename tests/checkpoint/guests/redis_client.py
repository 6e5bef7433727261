# SPDX-License-Identifier: Apache-2.0
"""One connection that counts and knows what was acknowledged, one with a transaction open at every instant in which somebody may look."""
import glob
import socket
import sys
import threading
import time


def connect():
    s = socket.create_connection(("127.0.0.1", 6379))
    return s, s.makefile("rb")


def answer(connection):
    head = connection[1].readline().decode().strip()
    if head.startswith("*"):
        return [answer(connection) for _ in range(int(head[1:]))]
    return connection[1].readline().decode().strip() if head.startswith("$") else head


def call(connection, text):
    connection[0].sendall(text.encode() + b"\r\n")
    return answer(connection)


def log():
    with open(glob.glob("/tmp/redis/appendonlydir/*.incr.aof")[0], "rb") as f:
        return f.read()


def begin():
    assert (call(mine, "MULTI"), call(mine, "INCR transactions")) == ("+OK", "+QUEUED")


lock, acknowledged, load = threading.Lock(), 0, connect()


def work():
    global acknowledged
    while True:
        with lock:
            call(load, "INCR load")
            acknowledged += 1


threading.Thread(target=work, daemon=True).start()
mine = connect()
begin()
print("ready", flush=True)
for line in sys.stdin:
    word, before = line.strip(), acknowledged
    while acknowledged < before + 100:
        pass
    with lock:
        assert call(load, "INCRBY load 0") == f":{acknowledged}"
    call(mine, f"RPUSH words {word}")
    call(mine, "LRANGE words 0 -1")
    number, length, words = call(mine, "EXEC")
    assert number == length == f":{len(words)}", (number, length, words)
    while f"\r\n{word}\r\n".encode() not in log():  # the server puts a write off while it still syncs an earlier one
        time.sleep(0.01)
    begin()
    print(" ".join(words), flush=True)
