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

/* As many groups as a pattern may have (parse.rs). */
#define GROUPS_MAX 200

static const char *const texts[NGY_TEXTS][2] = {
  { "[]", "__pattern_at" }, { "slice", "__pattern_at" }, { "index", "__pattern_index" },
  { "rindex", "__pattern_rindex" }, { "split", "__pattern_split" }, { "[]=", "__pattern_set" },
  { "start_with?", "__pattern_starts" },
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
static mrb_value text_set(mrb_state *mrb, mrb_value self) { return text(mrb, self, 5); }
static mrb_value text_starts(mrb_state *mrb, mrb_value self) { return text(mrb, self, 6); }

/* Where a group of a match lies; FALSE where it was not met. A script may have put anything there. */
static mrb_bool place_of(mrb_value string, mrb_value spans, mrb_int group, mrb_int *begin, mrb_int *end)
{
  mrb_value from = mrb_ary_entry(spans, 2 * group), to = mrb_ary_entry(spans, 2 * group + 1);
  if (!mrb_integer_p(from) || !mrb_integer_p(to)) return FALSE;
  *begin = mrb_integer(from);
  *end = mrb_integer(to);
  return *begin >= 0 && *end >= *begin && *end <= RSTRING_LEN(string);
}

static mrb_value group_of(mrb_state *mrb, mrb_value string, mrb_value spans, mrb_int group)
{
  mrb_int begin, end;
  if (!place_of(string, spans, group, &begin, &end)) return mrb_nil_value();
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

/* What a match tells, in the order of the names; nothing where it is none. */
static void tell(mrb_state *mrb, mrb_value match, mrb_value *values)
{
  mrb_value string = mrb_iv_get(mrb, match, mrb_intern_lit(mrb, "@string"));
  mrb_value spans = mrb_iv_get(mrb, match, mrb_intern_lit(mrb, "@spans"));
  mrb_int begin, end, met = 0;
  if (!mrb_string_p(string) || !mrb_array_p(spans) || !place_of(string, spans, 0, &begin, &end)) return;
  values[0] = match;
  values[1] = mrb_str_byte_subseq(mrb, string, begin, end - begin);
  values[2] = mrb_str_byte_subseq(mrb, string, 0, begin);
  values[3] = mrb_str_byte_subseq(mrb, string, end, RSTRING_LEN(string) - end);
  for (mrb_int group = 1; group <= GROUPS_MAX && group < RARRAY_LEN(spans) / 2; group++) {
    if (place_of(string, spans, group, &begin, &end)) met = group;
    if (group <= 9) values[4 + group] = group_of(mrb, string, spans, group);
  }
  if (met > 0) values[4] = met <= 9 ? values[4 + met] : group_of(mrb, string, spans, met);
}

static void set_match(mrb_state *mrb, mrb_value match)
{
  ngy_vm *vm = mrb->allocf_ud;
  mrb_value values[NGY_MATCH_NAMES];
  if (mrb_nil_p(match) && !vm->has_match) return;
  for (int i = 0; i < NGY_MATCH_NAMES; i++) values[i] = mrb_nil_value();
  vm->has_match = !mrb_nil_p(match);
  if (vm->has_match) tell(mrb, match, values);
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
  if (vm->match_root == root) { set_match(mrb, mrb_nil_value()); return; }
  mrb_hash_delete_key(mrb, mrb_ary_entry(vm->roots, ROOT_MATCHES), mrb_int_value(mrb, (mrb_int)root));
}

void ngy_prepare_patterns(mrb_state *mrb, struct RClass *nagaya)
{
  static const mrb_func_t ours[NGY_TEXTS] = {
    text_at, text_slice, text_index, text_rindex, text_split, text_set, text_starts
  };
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
