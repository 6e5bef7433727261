# SPDX-License-Identifier: Apache-2.0
"""Asks over one connection that it keeps, and sees that a new one is answered alike."""
import http.client
import sys

kept = http.client.HTTPConnection("127.0.0.1", 8080)


def get(connection, path):
    connection.request("GET", path)
    return connection.getresponse().read().decode()


get(kept, "/")
port = kept.sock.getsockname()[1]
print("ready", flush=True)
for line in sys.stdin:
    answer = get(kept, "/" + line.strip())
    assert kept.sock.getsockname()[1] == port, "it was connected anew"
    assert get(http.client.HTTPConnection("127.0.0.1", 8080), "/") == answer
    print(answer, flush=True)
