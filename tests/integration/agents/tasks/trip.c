/*
 * Plans a trip: asks for the weather in all cities at once, for the distances of a
 * tour one after the other, and orders things until the budget is spent.
 *
 * Input: {"cities": [text, ...], "since": integer}. Output: the weather by city, null
 * where there is none; the length of the tour; and what came of the orders.
 */
#include "caxton.h"

static const struct {
  const char *name;
  int64_t count;
} ITEMS[] = {{"lamp", 1}, {"map", 300}, {"tent", 70000}};

static void put(cx_writer *params, const char *key, cx_value value) {
  cx_str(params, key);
  cx_copy(params, value);
}

static void log_fine(cx_text city, cx_text sky) {
  CX_BUFFER(line, 256);
  cx_raw(&line, city.at, city.size);
  cx_raw(&line, ": ", 2);
  cx_raw(&line, sky.at, sky.size);
  cx_log_view(CX_INFO, (cx_text){(const char *)line.bytes, line.size});
}

CX_RUN {
  CX_BUFFER(result, 4096);
  CX_BUFFER(params, 1024);
  CX_BATCH(batch, 4096);
  static uint8_t kept[1024];
  cx_value input = cx_first(cx_input().value), fine[16];
  if (input.size > sizeof kept) return 1;
  /* The next reply takes the place of the input. */
  for (uint32_t i = 0; i < input.size; i++) kept[i] = input.at[i];
  input.at = kept;
  cx_value cities = cx_find(input, "cities");
  uint32_t count = cx_count(cities), found = 0;
  if (count > 16) return 1;

  for (uint32_t i = 0; i < count; i++) {
    cx_writer *ask = cx_add(&batch, "weather");
    cx_map(ask, 2);
    put(ask, "location", cx_at(cities, i));
    put(ask, "since", cx_find(input, "since"));
  }
  cx_reply replies = cx_call_many(&batch);
  cx_map(&result, 4);
  cx_str(&result, "weather");
  cx_map(&result, count);
  for (uint32_t i = 0; i < count; i++) {
    cx_value city = cx_at(cities, i);
    cx_reply reply = cx_answer(replies, i);
    cx_copy(&result, city);
    if (reply.status != CX_OK) {
      cx_log_view(CX_WARNING, cx_text_of(cx_find(reply.value, "message")));
      cx_nil(&result);
      continue;
    }
    fine[found++] = city;
    cx_value weather = cx_find(reply.value, "data.structuredContent");
    log_fine(cx_text_of(city), cx_text_of(cx_find(weather, "sky")));
    cx_map(&result, 2);
    put(&result, "sky", cx_find(weather, "sky"));
    put(&result, "celsius", cx_find(weather, "celsius"));
  }

  double km = 0;
  for (uint32_t i = 0; i < found; i++) {
    cx_map(&params, 3);
    put(&params, "start", fine[i]);
    put(&params, "end", fine[(i + 1) % found]);
    cx_str(&params, "options");
    cx_map(&params, 4);
    cx_str(&params, "avoid");
    cx_array(&params, 2);
    cx_str(&params, "tolls");
    cx_nil(&params);
    cx_str(&params, "walk");
    cx_bool(&params, false);
    cx_str(&params, "detour");
    cx_double(&params, 0.5);
    cx_str(&params, "altitude");
    cx_int(&params, -200);
    cx_reply reply = cx_call("mcp__maps__distance", &params);
    km += cx_double_of(cx_find(reply.value, "data.structuredContent.result"));
  }
  cx_str(&result, "km");
  cx_double(&result, km);

  for (uint32_t i = 0; i < 3; i++) {
    cx_writer *order = cx_add(&batch, "mcp__shop__order");
    cx_map(order, 2);
    cx_str(order, "item");
    cx_str(order, ITEMS[i].name);
    cx_str(order, "count");
    cx_int(order, ITEMS[i].count);
  }
  replies = cx_call_many(&batch);
  cx_value refused = {0, 0};
  cx_str(&result, "orders");
  cx_array(&result, 3);
  for (uint32_t i = 0; i < 3; i++) {
    cx_reply reply = cx_answer(replies, i);
    cx_copy(&result, cx_find(reply.value, "status"));
    cx_text message = cx_text_of(cx_find(reply.value, "message"));
    cx_log_view(reply.status == CX_DENIED ? CX_WARNING : CX_INFO, message);
    if (reply.status == CX_DENIED) refused = cx_find(reply.value, "error.code");
  }
  put(&result, "refused", refused);
  return cx_output(&result) ? 0 : 1;
}
