/* Uses every function of the header, as its input says. */
#define CX_REPLY_SIZE 64
#include "caxton.h"

/* Reads a value and writes it anew. Fewer than 2^20 values: the bytes end. */
static cx_value transcode(cx_writer *w, cx_value v, int depth) {
  cx_head head = cx_look(v);
  cx_value rest = cx_after(v);
  cx_value item = cx_inside(v);
  bool map = head.kind == CX_MAP;
  switch (head.kind) {
    case CX_NOTHING: w->full = true; break;
    case CX_NIL: cx_nil(w); break;
    case CX_BOOL: cx_bool(w, cx_bool_of(v)); break;
    case CX_INT:
      if (v.at[0] == 0xcf) cx_uint(w, (uint64_t)cx_int_of(v));
      else cx_int(w, cx_int_of(v));
      break;
    case CX_DOUBLE: cx_double(w, cx_double_of(v)); break;
    case CX_TEXT: cx_text_view(w, cx_text_of(v)); break;
    default:
      if (depth == 0) {
        w->full = true;
        break;
      }
      if (map) cx_map(w, head.count);
      else cx_array(w, head.count);
      for (uint32_t i = 0; i < head.count && item.size; i++) {
        if (map) item = transcode(w, item, depth - 1);
        item = transcode(w, item, depth - 1);
      }
  }
  return rest;
}

CX_RUN {
  CX_BUFFER(result, 1 << 20);
  cx_value input = cx_input().value;
  cx_text task = cx_text_of(cx_find(input, "task"));
  if (cx_same(task, "find")) {
    char path[256];
    cx_text wanted = cx_text_of(cx_find(input, "path"));
    for (uint32_t i = 0; i < wanted.size; i++) path[i] = wanted.at[i];
    path[wanted.size] = 0;
    cx_copy(&result, cx_find(cx_find(input, "value"), path));
  } else if (cx_same(task, "host")) {
    cx_map(&result, 5);
    cx_str(&result, "tools");
    cx_copy(&result, cx_find(cx_tools().value, "0.name"));
    cx_str(&result, "name");
    cx_copy(&result, cx_context("user_name").value);
    cx_str(&result, "unknown");
    cx_bool(&result, cx_context("nobody").status == CX_BAD_REQUEST);
    cx_str(&result, "now");
    cx_int(&result, cx_now());
    cx_str(&result, "random");
    cx_uint(&result, cx_random());
  } else if (cx_same(task, "full")) {
    CX_BUFFER(params, 8);
    cx_map(&params, 1);
    cx_str(&params, "key");
    cx_str(&params, "more than eight");
    bool refused = cx_call("weather", &params).status == CX_NO_ROOM;
    CX_BUFFER(small, 1);
    cx_int(&small, 1000);
    cx_bool(&result, refused && !params.full && !cx_output(&small));
  } else if (cx_same(task, "batch")) {
    CX_BATCH(batch, 32);
    cx_reply bad = cx_call_many(&batch); /* the machine refuses an empty one */
    cx_map(cx_add(&batch, "a name that does not fit in there"), 0);
    cx_status full = cx_call_many(&batch).status;
    cx_map(cx_add(&batch, "one"), 0);
    cx_writer *params = cx_add(&batch, "two");
    cx_map(params, 1);
    cx_str(params, "n");
    cx_int(params, 2);
    cx_reply replies = cx_call_many(&batch);
    cx_array(&result, 7);
    cx_int(&result, cx_answer(bad, 1).status);
    cx_int(&result, full);
    cx_int(&result, replies.status);
    for (uint32_t i = 0; i < 3; i++)
      cx_int(&result, cx_answer(replies, i).status);
    cx_copy(&result, cx_find(cx_answer(replies, 1).value, "message"));
  } else if (cx_same(task, "text")) {
    return cx_output_str("one text") ? 0 : 1;
  } else {
    transcode(&result, input, 64);
  }
  return cx_output(&result) ? 0 : 1;
}
