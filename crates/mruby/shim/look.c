/* Looking at Ruby's values from Rust. Nothing here allocates or raises. */
#include "shim.h"
#include <mruby/array.h>
#include <mruby/data.h>
#include <mruby/hash.h>
#include <mruby/string.h>

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

void ngy_sizes(size_t *sizes)
{
  sizes[0] = sizeof(mrb_value);
  sizes[1] = sizeof(ngy_answer);
  sizes[2] = sizeof(mrb_state);
  sizes[3] = offsetof(mrb_state, c);
  sizes[4] = offsetof(mrb_state, gc);
  sizes[5] = sizeof(mrb_callinfo);
}
