# SPDX-License-Identifier: Apache-2.0
import http.client
import json
import threading

from shop import server

from .support import BOOK, TEA, ShopTest


class Http(ShopTest):
    def setUp(self):
        super().setUp()
        httpd = server.serve(self.db)
        thread = threading.Thread(target=httpd.serve_forever, args=(0.01,))
        thread.start()
        self.addCleanup(httpd.server_close)
        self.addCleanup(thread.join)
        self.addCleanup(httpd.shutdown)
        self.client = http.client.HTTPConnection("127.0.0.1", httpd.server_port, timeout=10)
        self.addCleanup(self.client.close)

    def ask(self, method, path, body=None):
        data = body if isinstance(body, (bytes, type(None))) else json.dumps(body)
        self.client.request(method, path, data)
        answer = self.client.getresponse()
        return answer.status, json.loads(answer.read())

    def test_health(self):
        self.assertEqual(self.ask("GET", "/health"), (200, {"ok": True, "products": 4}))

    def test_pages_of_products(self):
        status, first = self.ask("GET", "/products?limit=2")
        self.assertEqual((status, [p["id"] for p in first["products"]]), (200, [1, 2]))
        _, rest = self.ask("GET", "/products?limit=2&after=2")
        self.assertEqual([p["id"] for p in rest["products"]], [3, 4])

    def test_order_to_refund(self):
        status, order = self.ask("POST", "/orders", {"customer": 1, "items": [{"product": BOOK, "quantity": 1}]})
        self.assertEqual((status, order["total_cents"]), (201, 1999))
        path = f"/orders/{order['id']}"
        self.assertEqual(self.ask("POST", path + "/payments", {"method": "card", "reference": "a"})[0], 201)
        status, refund = self.ask("POST", path + "/refunds", {"line": 1, "reference": "b"})
        self.assertEqual((status, refund["booked_cents"]), (201, 0))

    def test_errors(self):
        too_many = {"customer": 1, "items": [{"product": BOOK, "quantity": 6}]}
        for method, path, body, status, code in (
                ("GET", "/nothing", None, 404, "not_found"),
                ("GET", "/products/99", None, 404, "not_found"),
                ("GET", "/products?limit=x", None, 400, "invalid"),
                ("POST", "/orders", b"{not json", 400, "invalid"),
                ("POST", "/orders", b"[1]", 400, "invalid"),
                ("POST", "/orders", {"customer": "1", "items": []}, 400, "invalid"),
                ("POST", "/orders", too_many, 409, "conflict")):
            with self.subTest(path=path, body=body):
                answer = self.ask(method, path, body)
                self.assertEqual((answer[0], answer[1]["error"]), (status, code))

    def test_twenty_clients_sell_no_piece_twice(self):
        results = []

        def buy():
            client = http.client.HTTPConnection(self.client.host, self.client.port, timeout=10)
            client.request("POST", "/orders", json.dumps({"customer": 2, "items": [{"product": BOOK, "quantity": 1}]}))
            answer = client.getresponse()
            answer.read()
            results.append(answer.status)
            client.close()

        threads = [threading.Thread(target=buy) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(sorted(results), [201] * 5 + [409] * 15)
        self.assertEqual(self.stock(BOOK), 0)
        self.assertEqual(self.stock(TEA), 100)
