# SPDX-License-Identifier: Apache-2.0
"""Four connections that are kept under load, and one for each word; what the server's log says is the answer."""
import http.client
import sys
import threading

served = [0] * 4


def get(connection, path, want):
    connection.request("GET", path)
    assert connection.getresponse().read() == want
    return True


def work(i):
    connection = http.client.HTTPConnection("127.0.0.1", 8081)
    while get(connection, "/", b"served\n"):
        served[i] += 1


def goes_on():
    before = list(served)
    while any(now == then for now, then in zip(served, before)):
        pass


for n in range(len(served)):
    threading.Thread(target=work, args=(n,), daemon=True).start()
goes_on()
print("ready", flush=True)
for line in sys.stdin:
    goes_on()
    get(http.client.HTTPConnection("127.0.0.1", 8081), "/word/" + line.strip(), b"noted\n")
    words = []
    while not words or words[-1] != line.strip():  # the log is written behind the answer
        with open("/tmp/words", encoding="utf-8") as f:
            words = [uri.split("/")[2] for uri in f.read().split()]
    print(*words, flush=True)
