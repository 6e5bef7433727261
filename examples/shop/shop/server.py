# SPDX-License-Identifier: Apache-2.0
"""The HTTP interface: JSON in, JSON out. `python3 -m shop.server [--port N] [--db FILE]`"""

import argparse
import datetime
import http.server
import json
import re
import threading
import urllib.parse

from . import catalogue, orders, payments, reports
from .db import DEFAULT_PATH, connect
from .errors import Invalid, NotFound, ShopError

MAX_BODY_BYTES = 64 * 1024


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def field(body, name, kind):
    """A member of a request's body, of the right type; Invalid names it when it is not."""
    value = body.get(name)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise Invalid(f"{name} must be {kind.__name__}")
    return value


def list_products(db, query, body):
    try:
        after, limit = int(query.get("after", 0)), int(query.get("limit", 50))
    except ValueError:
        raise Invalid("after and limit must be numbers") from None
    return 200, {"products": catalogue.products(db, category=query.get("category"), after=after, limit=limit)}


def get_product(db, query, body, product_id):
    return 200, catalogue.product(db, product_id)


def post_order(db, query, body):
    items = [(field(item, "product", int), field(item, "quantity", int)) for item in field(body, "items", list)]
    order_id = orders.place(db, field(body, "customer", int), items, coupon=body.get("coupon"), now=now())
    return 201, orders.get(db, order_id)


def get_order(db, query, body, order_id):
    return 200, orders.get(db, order_id)


def cancel_order(db, query, body, order_id):
    orders.cancel(db, order_id)
    return 200, orders.get(db, order_id)


def post_payment(db, query, body, order_id):
    payment = payments.charge(
        db, order_id, method=field(body, "method", str), reference=field(body, "reference", str), now=now())
    return 201, {"payment": payment, "order": orders.get(db, order_id)}


def post_refund(db, query, body, order_id):
    payment = payments.refund_line(
        db, order_id, field(body, "line", int), reference=field(body, "reference", str), now=now())
    return 201, {"payment": payment, "booked_cents": payments.booked(db, order_id)}


def sales(db, query, body):
    return 200, {"months": reports.sales_by_month(db), "best_sellers": reports.best_sellers(db)}


def health(db, query, body):
    return 200, {"ok": True, "products": db.execute("SELECT COUNT(*) FROM product").fetchone()[0]}


ROUTES = [
    ("GET", r"/health", health),
    ("GET", r"/products", list_products),
    ("GET", r"/products/(\d+)", get_product),
    ("POST", r"/orders", post_order),
    ("GET", r"/orders/(\d+)", get_order),
    ("POST", r"/orders/(\d+)/cancel", cancel_order),
    ("POST", r"/orders/(\d+)/payments", post_payment),
    ("POST", r"/orders/(\d+)/refunds", post_refund),
    ("GET", r"/reports/sales", sales),
]


def route(method, path):
    """(handler, arguments) for a request line, or NotFound."""
    for verb, pattern, handler in ROUTES:
        match = re.fullmatch(pattern, path)
        if match and verb == method:
            return handler, [int(group) for group in match.groups()]
    raise NotFound(f"{method} {path}")


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "shop"

    def read_body(self):
        length = int(self.headers.get("Content-Length") or 0)
        if length > MAX_BODY_BYTES:
            self.close_connection = True
            raise Invalid("the body is too long")
        try:
            body = json.loads(self.rfile.read(length) or b"{}")
        except ValueError:
            raise Invalid("the body is not JSON") from None
        if not isinstance(body, dict):
            raise Invalid("the body must be an object")
        return body

    def answer(self, status, value):
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def handle_request(self):
        try:
            url = urllib.parse.urlsplit(self.path)
            query = dict(urllib.parse.parse_qsl(url.query))
            body = self.read_body()
            handler, arguments = route(self.command, url.path)
            with self.server.lock:
                status, value = handler(self.server.db, query, body, *arguments)
        except ShopError as error:
            status, value = error.status, {"error": error.code, "message": str(error)}
        self.answer(status, value)

    do_GET = do_POST = handle_request

    def log_message(self, format, *args):
        if self.server.verbose:
            super().log_message(format, *args)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64


def serve(db, port=0, *, verbose=False):
    """A server on loopback, not yet running; port 0 takes a free one."""
    server = Server(("127.0.0.1", port), Handler)
    server.db, server.lock, server.verbose = db, threading.Lock(), verbose
    return server


def main():
    parser = argparse.ArgumentParser(description="Serve the shop on loopback.")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--db", default=DEFAULT_PATH)
    options = parser.parse_args()
    server = serve(connect(options.db), options.port, verbose=True)
    print(f"shop: http://127.0.0.1:{server.server_port}/products", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
