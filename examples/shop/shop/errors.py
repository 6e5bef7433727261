# SPDX-License-Identifier: Apache-2.0
"""What a caller can get wrong; `status` is the HTTP status of the answer."""


class ShopError(Exception):
    status = 500
    code = "internal"


class NotFound(ShopError):
    status = 404
    code = "not_found"


class Invalid(ShopError):
    status = 400
    code = "invalid"


class Conflict(ShopError):
    status = 409
    code = "conflict"
