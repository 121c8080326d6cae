/* Looking at Ruby's values from Rust. Nothing here allocates or raises. */
#include "shim.h"
#include <mruby/array.h>
#include <mruby/data.h>
#include <mruby/debug.h>
#include <mruby/hash.h>
#include <mruby/proc.h>
#include <mruby/string.h>
#include <stdio.h>

/* A longer line of a backtrace is cut. */
#define LINE_BYTES_MAX 512

int ngy_kind(mrb_value value)
{
  switch (mrb_type(value)) {
  case MRB_TT_FALSE: return mrb_nil_p(value) ? NGY_IS_NIL : NGY_IS_FALSE;
  case MRB_TT_TRUE: return NGY_IS_TRUE;
  case MRB_TT_INTEGER: return NGY_IS_INTEGER;
  case MRB_TT_FLOAT: return NGY_IS_FLOAT;
  case MRB_TT_SYMBOL: return NGY_IS_SYMBOL;
  case MRB_TT_STRING: return NGY_IS_STRING;
  case MRB_TT_ARRAY: return NGY_IS_ARRAY;
  case MRB_TT_HASH: return NGY_IS_HASH;
  default: return NGY_IS_OTHER;
  }
}

int64_t ngy_integer(mrb_value value) { return (int64_t)mrb_integer(value); }
double ngy_float(mrb_value value) { return mrb_float(value); }

ngy_text ngy_string(mrb_value value)
{
  ngy_text text = { RSTRING_PTR(value), (size_t)RSTRING_LEN(value) };
  return text;
}

/* The name of a symbol; short ones are spelt out in memory that lasts until the next call. */
ngy_text ngy_symbol(ngy_vm *vm, mrb_value value)
{
  mrb_int size = 0;
  const char *bytes = mrb_sym_name_len(vm->mrb, mrb_symbol(value), &size);
  ngy_text text = { bytes ? bytes : "", bytes ? (size_t)size : 0 };
  return text;
}

size_t ngy_array_length(mrb_value value) { return (size_t)RARRAY_LEN(value); }
mrb_value ngy_array_at(mrb_value value, size_t index) { return mrb_ary_entry(value, (mrb_int)index); }

typedef struct walk { void *data; void (*each)(void *, mrb_value, mrb_value); } walk;

static int step(mrb_state *mrb, mrb_value key, mrb_value value, void *data)
{
  walk *walking = data;
  (void)mrb;
  walking->each(walking->data, key, value);
  return 0;
}

void ngy_hash_each(ngy_vm *vm, mrb_value value, void *data, void (*each)(void *, mrb_value, mrb_value))
{
  walk walking = { data, each };
  mrb_hash_foreach(vm->mrb, mrb_hash_ptr(value), step, &walking);
}

/* What Rust holds for this object, counted from 1; 0 for nothing. */
uint64_t ngy_handle(mrb_value value)
{
  if (mrb_type(value) != MRB_TT_DATA || DATA_TYPE(value) != &ngy_attached) return 0;
  return (uint64_t)(uintptr_t)DATA_PTR(value);
}

/* The number this object was stamped with; 0 for none. */
uint64_t ngy_stamp(mrb_value value)
{
  if (mrb_type(value) != MRB_TT_DATA || DATA_TYPE(value) != &ngy_stamped) return 0;
  return (uint64_t)(uintptr_t)DATA_PTR(value);
}

/* The frame that tells file and line of this one: itself, or the next of Ruby's below it. */
static const mrb_callinfo *of_ruby(const mrb_callinfo *ci, const struct mrb_context *context)
{
  for (; ci >= context->cibase; ci--) {
    if (ci->proc && !MRB_PROC_CFUNC_P(ci->proc) && ci->proc->body.irep && ci->pc) return ci;
  }
  return NULL;
}

/* Writes FILE:LINE:in METHOD; its length, 0 where nothing is known. */
static size_t place(mrb_state *mrb, const mrb_callinfo *ci, mrb_sym method, char *line)
{
  const mrb_irep *irep = ci->proc->body.irep;
  uint32_t at = (uint32_t)(ci->pc - 1 - irep->iseq);
  const char *file = mrb_debug_get_filename(mrb, irep, at);
  if (!file) return 0;
  int size = snprintf(line, LINE_BYTES_MAX, "%s:%d", file, (int)mrb_debug_get_line(mrb, irep, at));
  if (size < 0) return 0;
  /* A name may be spelt out where the file's was. */
  const char *name = method ? mrb_sym_name_len(mrb, method, NULL) : NULL;
  if (name && size < LINE_BYTES_MAX) size += snprintf(line + size, (size_t)(LINE_BYTES_MAX - size), ":in %s", name);
  return size < LINE_BYTES_MAX ? (size_t)size : LINE_BYTES_MAX - 1;
}

/* Tells where a fiber stands that waits in a native, innermost first, as a backtrace would. */
void ngy_where(ngy_vm *vm, size_t root, void *data, void (*each)(void *, ngy_text))
{
  mrb_value fiber = mrb_ary_entry(vm->roots, (mrb_int)root);
  if (mrb_type(fiber) != MRB_TT_FIBER) return;
  const struct mrb_context *context = ((struct RFiber *)mrb_ptr(fiber))->cxt;
  if (!context || context->status != MRB_FIBER_SUSPENDED) return;
  char line[LINE_BYTES_MAX];
  /* The native's frame was popped when it yielded, and lies there still: nothing has run since. */
  for (const mrb_callinfo *ci = context->ci + 1; ci >= context->cibase; ci--) {
    const mrb_callinfo *told = of_ruby(ci > context->ci ? ci - 1 : ci, context);
    if (!told) return;
    if (told != ci && !ci->mid) continue;
    ngy_text text = { line, place(vm->mrb, told, ci->mid, line) };
    if (text.size > 0) each(data, text);
  }
}

void ngy_sizes(size_t *sizes)
{
  sizes[0] = sizeof(mrb_value);
  sizes[1] = sizeof(ngy_answer);
  sizes[2] = sizeof(mrb_state);
  sizes[3] = offsetof(mrb_state, c);
  sizes[4] = offsetof(mrb_state, gc);
  sizes[5] = sizeof(mrb_callinfo);
  sizes[6] = sizeof(ngy_memory);
  sizes[7] = NGY_OPENING_BYTES;
}
