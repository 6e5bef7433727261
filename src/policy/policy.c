/* SPDX-License-Identifier: Apache-2.0 */
typedef int translation_unit_is_not_empty;
