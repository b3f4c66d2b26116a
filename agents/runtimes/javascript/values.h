/*
 * values.h: JavaScript values to msgpack and back, as the ABI has them.
 *
 * What JSON.stringify leaves out is left out, and toJSON is called. A whole number
 * within 2^53 is an integer, any other a float; a BigInt is an integer of 64 bits.
 */
#ifndef VALUES_H
#define VALUES_H

#include <stdint.h>

#include "quickjs.h"

typedef struct {
  uint8_t *at;
  size_t size, room;
} Bytes;

/* Append a value. Without an exception: 1, or 0 if the value is nothing to send. */
int encode(JSContext *ctx, Bytes *to, JSValueConst value);

/* Append bytes; -1 without memory. */
int put(JSContext *ctx, Bytes *to, const void *from, size_t size);

/* Insert the head of an array or map before what was appended since `start`. */
int put_head(JSContext *ctx, Bytes *to, size_t start, uint32_t count, int is_map);

typedef struct {
  const uint8_t *at;
  size_t size;
} Text;

/* Return the text that is packed there; an empty one if there is none. */
Text text_at(const uint8_t *from, size_t size);

/* Return the value of these bytes, which the host made. */
JSValue decode(JSContext *ctx, const uint8_t *from, size_t size);

#endif
