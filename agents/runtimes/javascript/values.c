#include "values.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LEVELS 1000
#define SAFE 9007199254740991.0

/* The key whose value is encoded, for errors. */
static char key_shown[64];

/* ---- To msgpack ---------------------------------------------------------------- */

int put(JSContext *ctx, Bytes *to, const void *from, size_t size) {
  if (to->room - to->size < size) {
    size_t room = (to->size + size) * 2 + 256;
    uint8_t *at = realloc(to->at, room);
    if (!at) {
      JS_ThrowOutOfMemory(ctx);
      return -1;
    }
    to->at = at;
    to->room = room;
  }
  memcpy(to->at + to->size, from, size);
  to->size += size;
  return 1;
}

static int put_number(JSContext *ctx, Bytes *to, uint8_t type, uint64_t value,
                      int size) {
  uint8_t bytes[9] = {type};
  for (int i = 0; i < size; i++) bytes[1 + i] = (uint8_t)(value >> 8 * (size - 1 - i));
  return put(ctx, to, bytes, 1 + (size_t)size);
}

static int put_integer(JSContext *ctx, Bytes *to, uint64_t value, int negative) {
  int64_t number = (int64_t)value;
  if (!negative) {
    if (value < 0x80) return put_number(ctx, to, (uint8_t)value, 0, 0);
    if (value <= UINT8_MAX) return put_number(ctx, to, 0xcc, value, 1);
    if (value <= UINT16_MAX) return put_number(ctx, to, 0xcd, value, 2);
    if (value <= UINT32_MAX) return put_number(ctx, to, 0xce, value, 4);
    return put_number(ctx, to, 0xcf, value, 8);
  }
  if (number >= -32) return put_number(ctx, to, (uint8_t)number, 0, 0);
  if (number >= INT8_MIN) return put_number(ctx, to, 0xd0, value, 1);
  if (number >= INT16_MIN) return put_number(ctx, to, 0xd1, value, 2);
  if (number >= INT32_MIN) return put_number(ctx, to, 0xd2, value, 4);
  return put_number(ctx, to, 0xd3, value, 8);
}

static int put_float(JSContext *ctx, Bytes *to, double value) {
  if (!isfinite(value)) {
    const char *word = isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity";
    JS_ThrowTypeError(ctx, "%s is %s, which JSON does not have", key_shown, word);
    return -1;
  }
  if (value == trunc(value) && fabs(value) <= SAFE)
    return put_integer(ctx, to, (uint64_t)(int64_t)value, value < 0);
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  return put_number(ctx, to, 0xcb, bits, 8);
}

static int put_text(JSContext *ctx, Bytes *to, const char *text, size_t size) {
  int done;
  if (!text) return -1;
  if (size < 32)
    done = put_number(ctx, to, (uint8_t)(0xa0 | size), 0, 0);
  else if (size <= UINT8_MAX)
    done = put_number(ctx, to, 0xd9, size, 1);
  else if (size <= UINT16_MAX)
    done = put_number(ctx, to, 0xda, size, 2);
  else
    done = put_number(ctx, to, 0xdb, size, 4);
  if (done > 0) done = put(ctx, to, text, size);
  JS_FreeCString(ctx, text);
  return done;
}

static int put_big(JSContext *ctx, Bytes *to, JSValueConst value) {
  size_t size;
  const char *text = JS_ToCStringLen(ctx, &size, value);
  if (!text) return -1;
  int negative = text[0] == '-';
  uint64_t number = 0, most = negative ? (uint64_t)1 << 63 : UINT64_MAX;
  for (const char *at = text + negative; *at; at++) {
    uint64_t digit = (uint64_t)(*at - '0');
    if (number > (most - digit) / 10) {
      JS_ThrowRangeError(ctx, "the integer %s has more than 64 bits", text);
      JS_FreeCString(ctx, text);
      return -1;
    }
    number = number * 10 + digit;
  }
  JS_FreeCString(ctx, text);
  return put_integer(ctx, to, negative ? -number : number, negative);
}

int put_head(JSContext *ctx, Bytes *to, size_t start, uint32_t count, int is_map) {
  uint8_t few = is_map ? 0x80 : 0x90, many = is_map ? 0xde : 0xdc;
  size_t end = to->size, head;
  int done = count < 16             ? put_number(ctx, to, few | (uint8_t)count, 0, 0)
             : count <= UINT16_MAX ? put_number(ctx, to, many, count, 2)
                                   : put_number(ctx, to, many + 1, count, 4);
  if (done < 0) return done;
  uint8_t bytes[5];
  head = to->size - end;
  memcpy(bytes, to->at + end, head);
  memmove(to->at + start + head, to->at + start, end - start);
  memcpy(to->at + start, bytes, head);
  return 1;
}

static int put_value(JSContext *ctx, Bytes *to, JSValueConst value, int level);

static int put_array(JSContext *ctx, Bytes *to, JSValueConst value, int level) {
  int64_t count;
  size_t start = to->size;
  if (JS_GetLength(ctx, value, &count) < 0) return -1;
  for (int64_t i = 0; i < count; i++) {
    JSValue item = JS_GetPropertyInt64(ctx, value, i);
    int done = JS_IsException(item) ? -1 : put_value(ctx, to, item, level);
    JS_FreeValue(ctx, item);
    if (done == 0) done = put(ctx, to, "\xc0", 1);
    if (done < 0) return done;
  }
  return put_head(ctx, to, start, (uint32_t)count, 0);
}

static int put_map(JSContext *ctx, Bytes *to, JSValueConst value, int level) {
  JSPropertyEnum *names;
  uint32_t count, kept = 0;
  size_t start = to->size;
  int done = 1, flags = JS_GPN_STRING_MASK | JS_GPN_ENUM_ONLY;
  if (JS_GetOwnPropertyNames(ctx, &names, &count, value, flags) < 0) return -1;
  for (uint32_t i = 0; done >= 0 && i < count; i++) {
    size_t size, before = to->size;
    JSValue item = JS_GetProperty(ctx, value, names[i].atom);
    const char *key = JS_AtomToCStringLen(ctx, &size, names[i].atom);
    if (key) strlcpy(key_shown, key, sizeof key_shown);
    done = put_text(ctx, to, key, size);
    if (JS_IsException(item)) done = -1;
    if (done > 0) done = put_value(ctx, to, item, level);
    if (done == 0) to->size = before;
    kept += done > 0;
    JS_FreeValue(ctx, item);
  }
  JS_FreePropertyEnum(ctx, names, count);
  return done < 0 ? done : put_head(ctx, to, start, kept, 1);
}

static int put_object(JSContext *ctx, Bytes *to, JSValueConst value, int level) {
  if (level > LEVELS) {
    JS_ThrowTypeError(ctx, "a value contains itself, or has over %d levels", LEVELS);
    return -1;
  }
  JSValue turn = JS_GetPropertyStr(ctx, value, "toJSON");
  if (JS_IsException(turn)) return -1;
  if (JS_IsFunction(ctx, turn)) {
    JSValue key = JS_NewString(ctx, "");
    JSValue made = JS_Call(ctx, turn, value, 1, &key);
    JS_FreeValue(ctx, key);
    JS_FreeValue(ctx, turn);
    int done = JS_IsException(made) ? -1 : JS_IsObject(made) && !JS_IsFunction(ctx, made)
                   ? (JS_IsArray(made) ? put_array : put_map)(ctx, to, made, level + 1)
                   : put_value(ctx, to, made, level + 1);
    JS_FreeValue(ctx, made);
    return done;
  }
  JS_FreeValue(ctx, turn);
  if (JS_IsFunction(ctx, value)) return 0;
  return (JS_IsArray(value) ? put_array : put_map)(ctx, to, value, level + 1);
}

static int put_value(JSContext *ctx, Bytes *to, JSValueConst value, int level) {
  if (JS_IsObject(value)) return put_object(ctx, to, value, level);
  if (JS_IsString(value)) {
    size_t size;
    const char *text = JS_ToCStringLen(ctx, &size, value);
    return put_text(ctx, to, text, size);
  }
  if (JS_IsNumber(value)) {
    double number;
    return JS_ToFloat64(ctx, &number, value) < 0 ? -1 : put_float(ctx, to, number);
  }
  if (JS_IsBool(value)) return put(ctx, to, JS_VALUE_GET_BOOL(value) ? "\xc3" : "\xc2", 1);
  if (JS_IsNull(value)) return put(ctx, to, "\xc0", 1);
  if (JS_IsBigInt(value)) return put_big(ctx, to, value);
  return 0;
}

int encode(JSContext *ctx, Bytes *to, JSValueConst value) {
  strcpy(key_shown, "the value");
  return put_value(ctx, to, value, 0);
}

/* ---- From msgpack ---------------------------------------------------------------- */

typedef struct {
  const uint8_t *at, *end;
} View;

static uint64_t take(View *from, int size) {
  uint64_t value = 0;
  for (; size && from->at < from->end; size--) value = value << 8 | *from->at++;
  return value;
}

static JSValue get_integer(JSContext *ctx, uint64_t value, int negative) {
  int64_t number = (int64_t)value;
  if (negative)
    return number >= -(int64_t)SAFE ? JS_NewInt64(ctx, number) : JS_NewBigInt64(ctx, number);
  return value <= (uint64_t)SAFE ? JS_NewInt64(ctx, number) : JS_NewBigUint64(ctx, value);
}

static JSValue get_text(JSContext *ctx, View *from, uint64_t size) {
  if (size > (uint64_t)(from->end - from->at)) return JS_ThrowTypeError(ctx, "a cut text");
  JSValue text = JS_NewStringLen(ctx, (const char *)from->at, (size_t)size);
  from->at += size;
  return text;
}

static JSValue get_value(JSContext *ctx, View *from, int level);

static JSValue get_array(JSContext *ctx, View *from, uint64_t count, int level) {
  JSValue array = JS_NewArray(ctx);
  for (uint32_t i = 0; i < count && !JS_IsException(array); i++) {
    JSValue item = get_value(ctx, from, level + 1);
    if (JS_IsException(item) ||
        JS_DefinePropertyValueUint32(ctx, array, i, item, JS_PROP_C_W_E) < 0) {
      JS_FreeValue(ctx, array);
      return JS_EXCEPTION;
    }
  }
  return array;
}

static JSValue get_map(JSContext *ctx, View *from, uint64_t count, int level) {
  JSValue map = JS_NewObject(ctx);
  for (uint64_t i = 0; i < count && !JS_IsException(map); i++) {
    JSValue key = get_value(ctx, from, level + 1);
    JSAtom name = JS_IsException(key) ? JS_ATOM_NULL : JS_ValueToAtom(ctx, key);
    JS_FreeValue(ctx, key);
    JSValue item = name == JS_ATOM_NULL ? JS_EXCEPTION : get_value(ctx, from, level + 1);
    int done = JS_IsException(item)
                   ? -1
                   : JS_DefinePropertyValue(ctx, map, name, item, JS_PROP_C_W_E);
    JS_FreeAtom(ctx, name);
    if (done < 0) {
      JS_FreeValue(ctx, map);
      return JS_EXCEPTION;
    }
  }
  return map;
}

static JSValue get_float(JSContext *ctx, uint64_t bits) {
  double value;
  memcpy(&value, &bits, sizeof value);
  return JS_NewFloat64(ctx, value);
}

static JSValue get_value(JSContext *ctx, View *from, int level) {
  if (level > LEVELS || from->at >= from->end) return JS_ThrowTypeError(ctx, "a cut value");
  uint8_t type = *from->at++;
  if (type < 0x80) return JS_NewInt32(ctx, type);
  if (type < 0x90) return get_map(ctx, from, type & 0x0f, level);
  if (type < 0xa0) return get_array(ctx, from, type & 0x0f, level);
  if (type < 0xc0) return get_text(ctx, from, type & 0x1f);
  if (type >= 0xe0) return JS_NewInt32(ctx, (int8_t)type);
  switch (type) {
    case 0xc0: return JS_NULL;
    case 0xc2: return JS_FALSE;
    case 0xc3: return JS_TRUE;
    case 0xca: {
      uint32_t bits = (uint32_t)take(from, 4);
      float value;
      memcpy(&value, &bits, sizeof value);
      return JS_NewFloat64(ctx, value);
    }
    case 0xcb: return get_float(ctx, take(from, 8));
    case 0xcc: return get_integer(ctx, take(from, 1), 0);
    case 0xcd: return get_integer(ctx, take(from, 2), 0);
    case 0xce: return get_integer(ctx, take(from, 4), 0);
    case 0xcf: return get_integer(ctx, take(from, 8), 0);
    case 0xd0: return JS_NewInt32(ctx, (int8_t)take(from, 1));
    case 0xd1: return JS_NewInt32(ctx, (int16_t)take(from, 2));
    case 0xd2: return JS_NewInt32(ctx, (int32_t)take(from, 4));
    case 0xd3: {
      uint64_t value = take(from, 8);
      return get_integer(ctx, value, (int64_t)value < 0);
    }
    case 0xd9: return get_text(ctx, from, take(from, 1));
    case 0xda: return get_text(ctx, from, take(from, 2));
    case 0xdb: return get_text(ctx, from, take(from, 4));
    case 0xdc: return get_array(ctx, from, take(from, 2), level);
    case 0xdd: return get_array(ctx, from, take(from, 4), level);
    case 0xde: return get_map(ctx, from, take(from, 2), level);
    case 0xdf: return get_map(ctx, from, take(from, 4), level);
    default: return JS_ThrowTypeError(ctx, "an unknown type of value");
  }
}

Text text_at(const uint8_t *from, size_t size) {
  View view = {from, from + size};
  uint8_t type = (uint8_t)take(&view, 1);
  uint64_t length = (type & 0xe0) == 0xa0 ? type & 0x1f
                    : type == 0xd9        ? take(&view, 1)
                    : type == 0xda        ? take(&view, 2)
                    : type == 0xdb        ? take(&view, 4)
                                          : 0;
  size_t left = (size_t)(view.end - view.at);
  return (Text){view.at, length < left ? (size_t)length : left};
}

JSValue decode(JSContext *ctx, const uint8_t *from, size_t size) {
  View view = {from, from + size};
  return get_value(ctx, &view, 0);
}
