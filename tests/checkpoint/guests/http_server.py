# SPDX-License-Identifier: Apache-2.0
"""Remembers the paths that it was asked for and answers with all of them; "/" alone is not remembered."""
import http.server

words = []


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        words.extend(self.path.split("/")[1:2] if self.path != "/" else [])
        body = " ".join(words).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 8080), Handler)
print("ready", flush=True)
server.serve_forever()
