/* Patterns: methods of String that take a Regexp too, and what `$~` and its kin hold.
 *
 * The one idea: a String method in C stays what it is for everything but an object of ours, which
 * is handed to a method in Ruby. `$~` belongs to the fiber: another fiber's is put away while this
 * one runs, so that no request ever sees what another has matched.
 */
#include "shim.h"
#include <mruby/array.h>
#include <mruby/class.h>
#include <mruby/hash.h>
#include <mruby/internal.h>
#include <mruby/proc.h>
#include <mruby/string.h>
#include <mruby/variable.h>

static const char *const texts[NGY_TEXTS][2] = {
  { "[]", "__pattern_at" }, { "slice", "__pattern_at" }, { "index", "__pattern_index" },
  { "rindex", "__pattern_rindex" }, { "split", "__pattern_split" },
};

static mrb_value text(mrb_state *mrb, mrb_value self, int which)
{
  ngy_vm *vm = mrb->allocf_ud;
  const mrb_value *given = mrb_get_argv(mrb);
  mrb_int count = mrb_get_argc(mrb);
  if (count > 0 && mrb_type(given[0]) == MRB_TT_DATA) {
    return mrb_funcall_argv(mrb, self, mrb_intern_cstr(mrb, texts[which][1]), count, given);
  }
  return vm->texts[which](mrb, self);
}

static mrb_value text_at(mrb_state *mrb, mrb_value self) { return text(mrb, self, 0); }
static mrb_value text_slice(mrb_state *mrb, mrb_value self) { return text(mrb, self, 1); }
static mrb_value text_index(mrb_state *mrb, mrb_value self) { return text(mrb, self, 2); }
static mrb_value text_rindex(mrb_state *mrb, mrb_value self) { return text(mrb, self, 3); }
static mrb_value text_split(mrb_state *mrb, mrb_value self) { return text(mrb, self, 4); }

/* Where a group of a match lies; FALSE where it was not met. */
static mrb_value group_of(mrb_state *mrb, mrb_value string, mrb_value spans, mrb_int group)
{
  mrb_value from = mrb_ary_entry(spans, 2 * group), to = mrb_ary_entry(spans, 2 * group + 1);
  if (!mrb_integer_p(from) || !mrb_integer_p(to)) return mrb_nil_value();
  mrb_int begin = mrb_integer(from), end = mrb_integer(to);
  if (begin < 0 || end < begin || end > RSTRING_LEN(string)) return mrb_nil_value();
  return mrb_str_byte_subseq(mrb, string, begin, end - begin);
}

/* Names of what a match is told by: $~ $& $` $' $+ $1 … $9. */
static mrb_sym name_of(mrb_state *mrb, int which)
{
  static const char *const names[NGY_MATCH_NAMES] = {
    "$~", "$&", "$`", "$'", "$+", "$1", "$2", "$3", "$4", "$5", "$6", "$7", "$8", "$9"
  };
  ngy_vm *vm = mrb->allocf_ud;
  if (!vm->names[which]) vm->names[which] = mrb_intern_cstr(mrb, names[which]);
  return vm->names[which];
}

static void set_match(mrb_state *mrb, mrb_value match)
{
  ngy_vm *vm = mrb->allocf_ud;
  mrb_value values[NGY_MATCH_NAMES];
  if (mrb_nil_p(match) && !vm->has_match) return;
  for (int i = 0; i < NGY_MATCH_NAMES; i++) values[i] = mrb_nil_value();
  vm->has_match = !mrb_nil_p(match);
  if (vm->has_match) {
    mrb_value string = mrb_iv_get(mrb, match, mrb_intern_lit(mrb, "@string"));
    mrb_value spans = mrb_iv_get(mrb, match, mrb_intern_lit(mrb, "@spans"));
    if (mrb_string_p(string) && mrb_array_p(spans)) {
      values[0] = match;
      values[1] = group_of(mrb, string, spans, 0);
      mrb_int from = mrb_integer(mrb_ary_entry(spans, 0)), to = mrb_integer(mrb_ary_entry(spans, 1));
      values[2] = mrb_str_byte_subseq(mrb, string, 0, from);
      values[3] = mrb_str_byte_subseq(mrb, string, to, RSTRING_LEN(string) - to);
      for (mrb_int group = 1; group < RARRAY_LEN(spans) / 2; group++) {
        mrb_value value = group_of(mrb, string, spans, group);
        if (!mrb_nil_p(value)) values[4] = value;
        if (group <= 9) values[4 + group] = value;
      }
    }
  }
  for (int i = 0; i < NGY_MATCH_NAMES; i++) mrb_gv_set(mrb, name_of(mrb, i), values[i]);
}

/* Nagaya.__last(match): what `$~` and its kin tell from now on in this fiber. */
static mrb_value last(mrb_state *mrb, mrb_value self)
{
  mrb_value match;
  (void)self;
  mrb_get_args(mrb, "o", &match);
  int arena = mrb_gc_arena_save(mrb);
  set_match(mrb, match);
  mrb_gc_arena_restore(mrb, arena);
  return match;
}

/* The fiber under `root` goes on: `$~` is what it was there. */
void ngy_swap_match(mrb_state *mrb, size_t root)
{
  ngy_vm *vm = mrb->allocf_ud;
  if (vm->match_root == root) return;
  mrb_value kept = mrb_ary_entry(vm->roots, ROOT_MATCHES);
  if (vm->has_match) {
    mrb_value match = mrb_gv_get(mrb, name_of(mrb, 0));
    mrb_hash_set(mrb, kept, mrb_int_value(mrb, (mrb_int)vm->match_root), match);
  }
  vm->match_root = root;
  set_match(mrb, mrb_hash_delete_key(mrb, kept, mrb_int_value(mrb, (mrb_int)root)));
}

/* Another hook begins under `root`: it has matched nothing yet. */
void ngy_forget_match(mrb_state *mrb, size_t root)
{
  ngy_vm *vm = mrb->allocf_ud;
  mrb_value kept = mrb_ary_entry(vm->roots, ROOT_MATCHES);
  if (mrb_hash_size(mrb, kept) > 0) mrb_hash_delete_key(mrb, kept, mrb_int_value(mrb, (mrb_int)root));
  if (vm->match_root == root) set_match(mrb, mrb_nil_value());
}

void ngy_prepare_patterns(mrb_state *mrb, struct RClass *nagaya)
{
  static const mrb_func_t ours[NGY_TEXTS] = { text_at, text_slice, text_index, text_rindex, text_split };
  ngy_vm *vm = mrb->allocf_ud;
  mrb_ary_set(mrb, vm->roots, ROOT_MATCHES, mrb_hash_new(mrb));
  for (int i = 0; i < NGY_TEXTS; i++) {
    struct RClass *string = mrb->string_class;
    mrb_method_t method = mrb_method_search_vm(mrb, &string, mrb_intern_cstr(mrb, texts[i][0]));
    if (MRB_METHOD_UNDEF_P(method) || !MRB_METHOD_FUNC_P(method)) continue;
    vm->texts[i] = MRB_METHOD_FUNC(method);
    mrb_define_method(mrb, mrb->string_class, texts[i][0], ours[i], MRB_ARGS_ANY());
  }
  mrb_define_module_function(mrb, nagaya, "__last", last, MRB_ARGS_REQ(1));
}
