# SPDX-License-Identifier: Apache-2.0
"""A scripted model: answers as the APIs of Anthropic and OpenAI do, whatever it is asked. The name of the model in a request says what goes wrong.

busy-STATUS: this status for the first time that it is asked; bad: a wrong request. A stream stops behind its first piece until somebody asks for the model "seen", so that who
gets there was not shown the pieces all at once.
"""

import json
import threading

from lib.pace import patience

PIECES = ["The ", "answer ", "is ", "42."]
TOKENS = 7  # of each answer


class Model:
    def __init__(self, key):
        self.key, self.asked, self.lock, self.seen = key, {}, threading.Lock(), threading.Event()
        self.uploads = []

    # ---- what is answered ---------------------------------------------------------------------------------------------------------

    def __call__(self, peer):
        while (head := peer.head()) is not None:
            body = peer.body(head)
            method, path, _ = head.decode().split("\r\n")[0].split(" ", 2)
            if f"x-api-key: {self.key}" not in head.decode() and f"authorization: Bearer {self.key}".lower() not in head.decode().lower():
                self.send(peer, 401, {"type": "error", "error": {"type": "authentication_error", "message": "wrong key"}})
            else:
                self.answer(peer, method, path.partition("?")[0], head, body)

    def answer(self, peer, method, path, head, body):
        asked = json.loads(body) if b"content-type: application/json" in head.lower() and body else {}
        model = asked.get("model", "")
        if model.startswith("busy-"):
            with self.lock:
                self.asked[model, path] = n = self.asked.get((model, path), 0) + 1
            if n <= 1:
                self.send(peer, int(model[5:8]), {"type": "error", "error": {"type": "overloaded_error", "message": "come back"}}, "retry-after: 0\r\n")
                return
        if model == "bad":
            self.send(peer, 400, {"type": "error", "error": {"type": "invalid_request_error", "message": "max_tokens: too many"}})
        elif path.endswith("/models/seen"):
            self.seen.set()
            self.send(peer, 200, {"id": "seen", "type": "model", "object": "model", "created": 1, "owned_by": "x", "display_name": "Seen", "created_at": "2026-01-01T00:00:00Z"})
        elif path in ("/v1/files", "/v1/audio/transcriptions"):
            self.uploads.append(body)
            self.send(peer, 200, {"id": "file_1", "type": "file", "object": "file", "filename": "a.txt", "bytes": len(body), "size_bytes": len(body), "mime_type": "text/plain", "text": "heard",
                                  "created_at": "2026-01-01T00:00:00Z" if b"anthropic" in head.lower() else 1, "purpose": "user_data", "status": "processed"})
        elif asked.get("stream"):
            self.stream(peer, self.events(path, asked))
        else:
            self.send(peer, 200, self.whole(path, asked))

    def whole(self, path, asked):
        text, tools = "".join(PIECES), asked.get("tools")
        usage = {"input_tokens": 11, "output_tokens": TOKENS, "total_tokens": 18, "prompt_tokens": 11, "completion_tokens": TOKENS}
        if path.endswith(("count_tokens", "input_tokens")):
            return {"input_tokens": len(json.dumps(asked)), "object": "response.input_tokens"}
        if path == "/v1/embeddings":
            return {"object": "list", "model": "m", "data": [{"object": "embedding", "index": 0, "embedding": [0.5, 0.25]}], "usage": usage}
        if path == "/v1/messages":
            content = {"type": "tool_use", "id": "t1", "name": tools[0]["name"], "input": {"city": "Bern"}} if tools else {"type": "text", "text": text}
            return {"id": "m1", "type": "message", "role": "assistant", "model": asked["model"], "content": [content], "stop_reason": "tool_use" if tools else "end_turn",
                    "stop_sequence": None, "usage": usage}
        if path == "/v1/responses":
            part = {"type": "function_call", "id": "f1", "call_id": "c1", "name": tools[0]["name"], "arguments": '{"city": "Bern"}', "status": "completed"} if tools else \
                {"type": "message", "id": "m1", "role": "assistant", "status": "completed", "content": [{"type": "output_text", "text": text, "annotations": []}]}
            return {"id": "r1", "object": "response", "created_at": 1, "status": "completed", "model": asked["model"], "output": [part], "parallel_tool_calls": True, "tool_choice": "auto",
                    "tools": [], "usage": {**usage, "input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}}
        call = [{"id": "c1", "type": "function", "function": {"name": tools[0]["function"]["name"], "arguments": '{"city": "Bern"}'}}] if tools else None
        return {"id": "c", "object": "chat.completion", "created": 1, "model": asked["model"], "usage": usage,
                "choices": [{"index": 0, "finish_reason": "tool_calls" if tools else "stop", "message": {"role": "assistant", "content": None if tools else text, "tool_calls": call}}]}

    def events(self, path, asked):
        """What a stream says, piece by piece."""
        if path == "/v1/messages":
            message = {**self.whole(path, {"model": asked["model"]}), "content": [], "stop_reason": None, "usage": {"input_tokens": 11, "output_tokens": 1}}
            said = [{"type": "message_start", "message": message}, {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
                    *({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}} for piece in PIECES), {"type": "content_block_stop", "index": 0},
                    {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": {"output_tokens": TOKENS}}, {"type": "message_stop"}]
            return [f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in said]
        if path == "/v1/responses":
            whole = self.whole(path, {"model": asked["model"]})
            begun = {**whole, "status": "in_progress", "output": [], "usage": None}
            item = {**whole["output"][0], "status": "in_progress", "content": []}
            part = {"item_id": "m1", "output_index": 0, "content_index": 0}
            said = [{"type": "response.created", "response": begun}, {"type": "response.output_item.added", "output_index": 0, "item": item},
                    {"type": "response.content_part.added", **part, "part": {"type": "output_text", "text": "", "annotations": []}},
                    *({"type": "response.output_text.delta", **part, "delta": piece, "logprobs": []} for piece in PIECES),
                    {"type": "response.output_text.done", **part, "text": "".join(PIECES), "logprobs": []}, {"type": "response.completed", "response": whole}]
            return [f"event: {e['type']}\ndata: {json.dumps({**e, 'sequence_number': i})}\n\n" for i, e in enumerate(said)]
        chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": asked["model"]}
        said = [{**chunk, "choices": [{"index": 0, "delta": {"role": "assistant", "content": piece}, "finish_reason": None}]} for piece in PIECES]
        said.append({**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        if asked.get("stream_options", {}).get("include_usage"):
            said.append({**chunk, "choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": TOKENS, "total_tokens": 18}})
        return [f"data: {json.dumps(e)}\n\n" for e in said] + ["data: [DONE]\n\n"]

    # ---- how --------------------------------------------------------------------------------------------------------------------

    def send(self, peer, status, value, more=""):
        text = json.dumps(value).encode()
        peer.send(f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\nrequest-id: req_1\r\n{more}\r\n".encode() + text)

    def stream(self, peer, events):
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for event in events:
            peer.send(b"%x\r\n" % len(event.encode()) + event.encode() + b"\r\n")
            if PIECES[0] in event and not self.seen.wait(patience(60)):
                return  # broken off: whoever reads it fails
        self.seen.clear()
        peer.send(b"0\r\n\r\n")
