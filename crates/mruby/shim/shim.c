/* Between Rust and mruby: guarded calls, values, natives. Budgets are in room.c.
 *
 * The one idea: no longjmp ever crosses a Rust frame. Rust enters mruby only through `guarded`,
 * which catches; mruby enters Rust only through `native`, whose Rust part never calls back into
 * mruby: it answers with plain data, and values are made of it when its frame is gone.
 */
#include "shim.h"
#include <mruby/array.h>
#include <mruby/class.h>
#include <mruby/compile.h>
#include <mruby/data.h>
#include <mruby/error.h>
#include <mruby/hash.h>
#include <mruby/internal.h>
#include <mruby/proc.h>
#include <mruby/string.h>
#include <mruby/variable.h>
#include <stdlib.h>
#include <string.h>

#define ARGUMENTS_MAX 64
#define TREE_DEPTH_MAX 64
#define BACKTRACE_LINES_MAX 20

/* ---- guarded calls ---- */

/* The frame that C called, with a block or method of Ruby's in it; NULL when there is none. */
static const mrb_callinfo *c_frame(const struct mrb_context *context)
{
  for (const mrb_callinfo *ci = context->ci; ci > context->cibase; ci--) {
    if (ci->cci > 0) return ci;
  }
  return NULL;
}

typedef struct description { ngy_vm *vm; mrb_value exception; } description;

static mrb_value describe(mrb_state *mrb, void *data)
{
  description *what = data;
  mrb_value class_name = mrb_str_new_cstr(mrb, mrb_obj_classname(mrb, what->exception));
  mrb_value message = mrb_funcall(mrb, what->exception, "message", 0);
  if (!mrb_string_p(message)) message = mrb_str_new_lit(mrb, "");
  mrb_value lines = mrb_exc_backtrace(mrb, what->exception);
  mrb_value text = mrb_str_new_lit(mrb, "");
  for (mrb_int i = 0; mrb_array_p(lines) && i < RARRAY_LEN(lines) && i < BACKTRACE_LINES_MAX; i++) {
    if (i > 0) mrb_str_cat_lit(mrb, text, "\n");
    mrb_str_cat_str(mrb, text, mrb_obj_as_string(mrb, RARRAY_PTR(lines)[i]));
  }
  ngy_text parts[3] = {
    { RSTRING_PTR(class_name), (size_t)RSTRING_LEN(class_name) },
    { RSTRING_PTR(message), (size_t)RSTRING_LEN(message) },
    { RSTRING_PTR(text), (size_t)RSTRING_LEN(text) },
  };
  what->vm->inside = 0;
  what->vm->host.failed(what->vm->host.state, parts[0], parts[1], parts[2]);
  what->vm->inside = 1;
  return mrb_nil_value();
}

static int guarded_once(ngy_vm *vm, mrb_protect_error_func *body, void *data, mrb_value *result)
{
  mrb_bool error = FALSE;
  vm->started_ns = 0;
  vm->over = 0;
  if (vm->killed) mrb_ary_set(vm->mrb, vm->roots, ROOT_KILLER, mrb_nil_value());
  vm->killed = 0;
  if (vm->counting) vm->mrb->code_fetch_hook = ngy_fetched;
  if (sigsetjmp(vm->escape, 0) != 0) {
    ngy_running = NULL;
    return NGY_LOST;
  }
  ngy_running = vm;
  vm->inside = 1;
  *result = mrb_protect_error(vm->mrb, body, data, &error);
  vm->inside = 0;
  ngy_running = NULL;
  vm->mrb->code_fetch_hook = NULL;
  vm->raising = 0;
  return error ? NGY_RAISED : NGY_FINE;
}

/* Runs `body` and tells the host of its exception. Leaves the arena as it was. */
static int guarded(ngy_vm *vm, mrb_protect_error_func *body, void *data)
{
  int arena = mrb_gc_arena_save(vm->mrb);
  mrb_value result = mrb_nil_value();
  int ended = guarded_once(vm, body, data, &result);
  if (ended == NGY_RAISED) {
    description what = { vm, result };
    mrb_value ignored;
    int described = guarded_once(vm, describe, &what, &ignored);
    if (described == NGY_LOST) return NGY_LOST;
    if (described == NGY_RAISED) {
      ngy_text none = { "", 0 }, name = { "Exception", 9 };
      vm->host.failed(vm->host.state, name, none, none);
    }
  }
  vm->result = result;
  if (ended != NGY_LOST) mrb_gc_arena_restore(vm->mrb, arena);
  return ended;
}

/* ---- values out of a tree: what Rust wrote becomes Ruby's ---- */

typedef struct reader { const char *at, *end; } reader;

static uint64_t read_word(reader *in)
{
  uint64_t word = 0;
  if (in->end - in->at >= 8) { memcpy(&word, in->at, 8); in->at += 8; } else in->at = in->end;
  return word;
}

static ngy_text read_text(reader *in)
{
  ngy_text text = { in->at, 0 };
  uint64_t size = read_word(in);
  if (size > (uint64_t)(in->end - in->at)) size = (uint64_t)(in->end - in->at);
  text.bytes = in->at;
  text.size = (size_t)size;
  in->at += size;
  return text;
}

static void release_handle(mrb_state *mrb, void *pointer)
{
  ngy_vm *vm = mrb->allocf_ud;
  if (!pointer) return;
  sig_atomic_t inside = vm->inside;
  vm->inside = 0;
  vm->host.dropped(vm->host.state, (uint64_t)(uintptr_t)pointer - 1);
  vm->inside = inside;
}

const mrb_data_type ngy_attached = { "Nagaya", release_handle };
const mrb_data_type ngy_stamped = { "Nagaya", NULL };

static struct RClass *class_at(mrb_state *mrb, ngy_text path)
{
  mrb_value found = mrb_obj_value(mrb->object_class);
  const char *at = path.bytes, *end = path.bytes + path.size;
  while (at < end) {
    const char *stop = at;
    while (stop < end && *stop != ':') stop++;
    found = mrb_const_get(mrb, found, mrb_intern(mrb, at, (size_t)(stop - at)));
    at = stop < end ? stop + 2 : end;
  }
  enum mrb_vtype type = mrb_type(found);
  if (type != MRB_TT_CLASS && type != MRB_TT_MODULE) mrb_raise(mrb, E_TYPE_ERROR, "not a class");
  return mrb_class_ptr(found);
}

/* The object has what the handle stands for before its class is looked up: a script may have taken
 * that away, and what dies with the object is let go. */
static mrb_value object_of(mrb_state *mrb, ngy_text path, uint64_t handle)
{
  void *held = (void *)(uintptr_t)(handle + 1);
  struct RData *object = mrb_data_object_alloc(mrb, NULL, held, &ngy_attached);
  struct RClass *class = class_at(mrb, path);
  if (MRB_INSTANCE_TT(class) != MRB_TT_DATA) mrb_raise(mrb, E_TYPE_ERROR, "this class was replaced");
  object->c = class;
  mrb_field_write_barrier(mrb, (struct RBasic *)object, (struct RBasic *)class);
  return mrb_obj_value(object);
}

static mrb_value grown(mrb_state *mrb, reader *in, int depth)
{
  if (depth > TREE_DEPTH_MAX || in->at >= in->end) return mrb_nil_value();
  switch (*in->at++) {
  case 't': return mrb_true_value();
  case 'f': return mrb_false_value();
  case 'i': return mrb_int_value(mrb, (mrb_int)read_word(in));
  case 'd': { uint64_t word = read_word(in); double number; memcpy(&number, &word, 8); return mrb_float_value(mrb, number); }
  case 's': { ngy_text text = read_text(in); return mrb_str_new(mrb, text.bytes, (mrb_int)text.size); }
  case 'y': { ngy_text text = read_text(in); return mrb_symbol_value(mrb_intern(mrb, text.bytes, text.size)); }
  case 'c': return mrb_obj_value(class_at(mrb, read_text(in)));
  case 'o': { ngy_text path = read_text(in); return object_of(mrb, path, read_word(in)); }
  case 'T': {
    mrb_value at[2];
    at[0] = mrb_int_value(mrb, (mrb_int)read_word(in));
    at[1] = mrb_int_value(mrb, (mrb_int)read_word(in));
    return mrb_funcall_argv(mrb, mrb_obj_value(mrb_class_get(mrb, "Time")), mrb_intern_lit(mrb, "at"), 2, at);
  }
  case 'a': {
    uint64_t count = read_word(in);
    mrb_value array = mrb_ary_new(mrb);
    int arena = mrb_gc_arena_save(mrb);
    while (count-- > 0 && in->at < in->end) {
      mrb_ary_push(mrb, array, grown(mrb, in, depth + 1));
      mrb_gc_arena_restore(mrb, arena);
    }
    return array;
  }
  case 'h': {
    uint64_t count = read_word(in);
    mrb_value hash = mrb_hash_new(mrb);
    int arena = mrb_gc_arena_save(mrb);
    while (count-- > 0 && in->at < in->end) {
      mrb_value key = grown(mrb, in, depth + 1);
      mrb_hash_set(mrb, hash, key, grown(mrb, in, depth + 1));
      mrb_gc_arena_restore(mrb, arena);
    }
    return hash;
  }
  default: return mrb_nil_value();
  }
}

static mrb_value tree(mrb_state *mrb, const char *bytes, size_t size)
{
  reader in = { bytes, bytes + size };
  return grown(mrb, &in, 0);
}

static mrb_value exception_of(mrb_state *mrb, const ngy_answer *answer)
{
  ngy_text path = { answer->name, answer->name_size };
  return mrb_exc_new(mrb, class_at(mrb, path), answer->bytes, (mrb_int)answer->size);
}

/* ---- natives ---- */

static void refuse_wait(mrb_state *mrb, ngy_vm *vm)
{
  struct mrb_context *context = mrb->c;
  const mrb_callinfo *called = c_frame(context);
  if (!called && context->prev == mrb->root_c) return;
  vm->inside = 0;
  vm->host.cancel(vm->host.state);
  vm->inside = 1;
  struct RClass *fiber_error = mrb_class_get(mrb, "FiberError");
  if (!called)
    mrb_raisef(mrb, fiber_error, "%n cannot wait inside a Fiber or Enumerator of the script's own", context->ci->mid);
  const struct RProc *caller = called[-1].proc;
  mrb_bool by_operator = caller && !MRB_PROC_CFUNC_P(caller);
  mrb_sym name = by_operator ? mrb_intern_lit(mrb, "an operator") : called[-1].mid;
  mrb_raisef(mrb, fiber_error, "%n cannot wait inside a block or method called by %n: call it before, and keep the result", context->ci->mid, name);
}

/* Lets `self` hold what was given or bear a number. Any other object has no room for it: a script can
 * call a method of one class with an object of another. */
static mrb_value hold(mrb_state *mrb, ngy_vm *vm, mrb_value self, uintptr_t what, const mrb_data_type *type)
{
  if (mrb_type(self) == MRB_TT_DATA && (!DATA_TYPE(self) || DATA_TYPE(self) == type)) {
    mrb_data_init(self, (void *)what, type);
    return self;
  }
  if (type == &ngy_attached) release_handle(mrb, (void *)what);
  mrb_raise(mrb, E_TYPE_ERROR, "this object is not of the class it is initialized as");
}

static mrb_value value_of(mrb_state *mrb, ngy_vm *vm, mrb_value self, const mrb_value *argv, const ngy_answer *answer)
{
  switch (answer->kind) {
  case NGY_TRUE: return mrb_true_value();
  case NGY_FALSE: return mrb_false_value();
  case NGY_INTEGER: return mrb_int_value(mrb, (mrb_int)answer->integer);
  case NGY_FLOAT: return mrb_float_value(mrb, answer->number);
  case NGY_BYTES: return mrb_str_new(mrb, answer->bytes, (mrb_int)answer->size);
  case NGY_TREE: return tree(mrb, answer->bytes, answer->size);
  case NGY_SELF: return self;
  case NGY_ARGUMENT: return argv[answer->integer];
  case NGY_STAMP: return hold(mrb, vm, self, (uintptr_t)answer->integer, &ngy_stamped);
  case NGY_ATTACH: return hold(mrb, vm, self, (uintptr_t)answer->integer + 1, &ngy_attached);
  case NGY_WAIT: refuse_wait(mrb, vm); return mrb_fiber_yield(mrb, 0, NULL);
  case NGY_RAISE: mrb_exc_raise(mrb, exception_of(mrb, answer));
  default: return mrb_nil_value();
  }
}

/* The arguments of the call we are in, where they lie. */
static mrb_int given(mrb_state *mrb, const mrb_value **arguments)
{
  const mrb_callinfo *ci = mrb->c->ci;
  if (ci->nk == 0 && ci->n < 15) {
    *arguments = ci->stack + 1;
    return ci->n;
  }
  mrb_int count = 0;
  mrb_get_args(mrb, "*!", arguments, &count);
  return count;
}

/* Makes Strings of the arguments that `texts` tells. A `to_s` may move the stack they came from, or
 * empty the Array they came in, and collect: from there on they are kept by the arena. */
static void make_texts(mrb_state *mrb, uint32_t texts, mrb_int count, mrb_value *copied)
{
  const mrb_value *found;
  mrb_bool kept = FALSE;
  given(mrb, &found);
  memcpy(copied, found, (size_t)count * sizeof *copied);
  for (mrb_int i = 0; i < count; i++) {
    if (!(texts >> (i < 15 ? i : 15) & 1) || mrb_string_p(copied[i]) || mrb_nil_p(copied[i])) continue;
    for (mrb_int all = 0; !kept && all < count; all++) mrb_gc_protect(mrb, copied[all]);
    kept = TRUE;
    copied[i] = mrb_obj_as_string(mrb, copied[i]);
    mrb_gc_protect(mrb, copied[i]);
  }
}

/* Every native of ours: which one, and what it takes, is in the Integer that its method was made with
 * (number, least and most arguments, a bit for each argument that is to be made a String). */
static mrb_value native(mrb_state *mrb, mrb_value self)
{
  ngy_vm *vm = mrb->allocf_ud;
  uint64_t spec = (uint64_t)mrb_integer(MRB_PROC_ENV(mrb->c->ci->proc)->stack[0]);
  mrb_int least = (spec >> 20) & 0xff, most = (spec >> 28) & 0xff;
  uint32_t texts = (uint32_t)(spec >> 36) & 0xffff;
  const mrb_value *arguments;
  mrb_value copied[ARGUMENTS_MAX];
  mrb_int count = given(mrb, &arguments);
  if (count < least || count > most) mrb_argnum_error(mrb, count, (int)least, (int)most);
  if (texts && count > 0) {
    make_texts(mrb, texts, count, copied);
    arguments = copied;
  }
  ngy_answer answer;
  sig_atomic_t inside = vm->inside;
  vm->inside = 0;
  vm->host.dispatch(vm->host.state, (uint32_t)(spec & 0xfffff), self, (size_t)count, arguments, &answer);
  vm->inside = inside;
  return value_of(mrb, vm, self, arguments, &answer);
}

/* CLASS.new where `initialize` is a native: Ruby's own makes an Array and a Hash of the arguments at
 * each call. That one serves classes of the script's below, with an `initialize` of their own. */
static mrb_value new_object(mrb_state *mrb, mrb_value self)
{
  ngy_vm *vm = mrb->allocf_ud;
  struct RClass *owner = mrb_class_ptr(self), *class_class = mrb->class_class;
  mrb_method_t method = mrb_method_search_vm(mrb, &owner, vm->initialize);
  mrb_bool is_ours = !MRB_METHOD_UNDEF_P(method) && MRB_METHOD_PROC_P(method) &&
    MRB_PROC_CFUNC_P(MRB_METHOD_PROC(method)) && MRB_PROC_CFUNC(MRB_METHOD_PROC(method)) == native;
  if (is_ours && MRB_INSTANCE_TT(mrb_class_ptr(self)) == MRB_TT_DATA) {
    mrb_value object = mrb_obj_value(mrb_data_object_alloc(mrb, mrb_class_ptr(self), NULL, NULL));
    mrb_vm_ci_proc_set(mrb->c->ci, MRB_METHOD_PROC(method));
    native(mrb, object);
    return object;
  }
  method = mrb_method_search_vm(mrb, &class_class, mrb_intern_lit(mrb, "new"));
  if (MRB_METHOD_UNDEF_P(method) || !MRB_METHOD_PROC_P(method)) mrb_raise(mrb, E_NOTIMP_ERROR, "Class#new was replaced");
  return mrb_exec_irep(mrb, self, (struct RProc *)MRB_METHOD_PROC(method));
}

/* Learns from the first script that a fiber's block calls where that stands then. */
static void learn_block(mrb_state *mrb, ngy_vm *vm)
{
  const struct mrb_context *context = mrb->c;
  const mrb_callinfo *call = context->ci, *base = context->cibase;
  if (vm->block || call != base + 1 || !ngy_is_claimed(context->fib)) return;
  vm->block = base->proc->body.irep;
  mrb_irep_incref(mrb, (struct mrb_irep *)vm->block); /* no other ever lies there */
  vm->behind_call = base->pc;
  vm->script_at = call->stack - base->stack;
}

/* Nagaya.__run(index): the compiled script, in this very frame, so that it may wait. */
static mrb_value run_script(mrb_state *mrb, mrb_value self)
{
  ngy_vm *vm = mrb->allocf_ud;
  const mrb_value *index;
  mrb_value script = mrb_nil_value();
  if (given(mrb, &index) == 1 && mrb_integer_p(*index)) script = mrb_ary_entry(vm->roots, mrb_integer(*index));
  (void)self;
  if (!mrb_proc_p(script)) mrb_raise(mrb, E_ARGUMENT_ERROR, "no such script");
  learn_block(mrb, vm);
  ngy_forget_match(mrb, vm->match_root);
  mrb->c->ci->mid = 0; /* the top of a script is in no method */
  mrb_vm_ci_target_class_set(mrb->c->ci, mrb->object_class);
  return mrb_exec_irep(mrb, mrb_top_self(mrb), mrb_proc_ptr(script));
}

/* ---- what Rust calls ---- */

typedef struct order {
  ngy_vm *vm;
  ngy_text text, name, super;
  const ngy_answer *value;
  uint64_t number;
  mrb_int root;
  int kind;
} order;

/* A fiber's block runs one script and ends; it is made to begin anew for the next. */
static const char fiber_source[] =
  "module Nagaya; def self.__fiber; Fiber.new { |script| __run(script) }; end; end";

/* Classes whose objects are made by C code alone: without what that puts into them, their methods read
 * what is not there. Said to patches/class.patch, which asks for their subclasses too. */
#define NO_ALLOCATE (1 << 8)
static const char *const made_by_c[] = { "Proc", "Method", "UnboundMethod", "Binding", "Rational", "Complex", "Class" };

static void forbid_allocate(mrb_state *mrb)
{
  for (size_t i = 0; i < sizeof made_by_c / sizeof *made_by_c; i++) {
    mrb_class_get(mrb, made_by_c[i])->flags |= NO_ALLOCATE;
  }
}

static mrb_value prepare(mrb_state *mrb, void *data)
{
  ngy_vm *vm = data;
  struct RClass *script_error = mrb_class_get(mrb, "Exception");
  mrb_define_class(mrb, "ScriptBudgetError", script_error);
  vm->initialize = mrb_intern_lit(mrb, "initialize");
  struct RClass *nagaya = mrb_define_module(mrb, "Nagaya");
  mrb_define_module_function(mrb, nagaya, "__run", run_script, MRB_ARGS_REQ(1));
  forbid_allocate(mrb);
  ngy_prepare_fibers(mrb);
  ngy_prepare_missing(mrb);
  ngy_prepare_times(mrb);
  /* In generational mode a full collection that meets a half-done major one forgets what is young
   * (mruby 3.2.0, clear_all_old), and frees what is in use. */
  mrb_value gc = mrb_obj_value(mrb_module_get(mrb, "GC"));
  mrb_funcall(mrb, gc, "generational_mode=", 1, mrb_false_value());
  mrb_undef_class_method(mrb, mrb_module_get(mrb, "GC"), "generational_mode=");
  /* It would hand out what is ours: the roots, and natives without their objects. */
  mrb_undef_class_method(mrb, mrb_module_get(mrb, "ObjectSpace"), "each_object");
  for (mrb_int i = 0; i < ROOTS_OWN; i++) mrb_ary_push(mrb, vm->roots, mrb_nil_value());
  /* Most of what lives is the API itself, which each collection marks anew: fewer of them. */
  mrb->gc.interval_ratio = 300;
  ngy_prepare_patterns(mrb, nagaya);
  mrbc_context *context = mrbc_context_new(mrb);
  mrbc_filename(mrb, context, "<nagaya>/fiber");
  mrb_load_nstring_cxt(mrb, fiber_source, sizeof fiber_source - 1, context);
  mrbc_context_free(mrb, context);
  return mrb_nil_value();
}

ngy_vm *ngy_open(const ngy_host *host, ngy_memory *memory, uint64_t cpu_ns_max)
{
  ngy_vm *vm = calloc(1, sizeof *vm);
  if (!vm) return NULL;
  vm->host = *host;
  vm->cpu_ns_max = cpu_ns_max;
  vm->sealed = 1;
  if (!ngy_enter_memory(vm, memory)) { ngy_discard(vm); return NULL; }
  ngy_pool_open(&vm->pool, memory->bytes_max);
  vm->mrb = mrb_open_allocf(ngy_allocate, vm);
  if (!vm->mrb) { ngy_discard(vm); return NULL; }
  vm->roots = mrb_ary_new(vm->mrb);
  mrb_gc_register(vm->mrb, vm->roots);
  mrb_bool error = FALSE;
  mrb_protect_error(vm->mrb, prepare, vm, &error);
  if (error) { ngy_close(vm); return NULL; }
  return vm;
}

void ngy_unseal(ngy_vm *vm) { vm->sealed = 0; }

void ngy_set_cpu(ngy_vm *vm, uint64_t cpu_ns_max) { vm->cpu_ns_max = cpu_ns_max; }

static mrb_value define_class(mrb_state *mrb, void *data)
{
  order *what = data;
  struct RClass *outer = class_at(mrb, what->super);
  mrb_sym name = mrb_intern(mrb, what->name.bytes, what->name.size);
  if (what->kind == 0) { mrb_define_module_under_id(mrb, outer, name); return mrb_nil_value(); }
  struct RClass *class = mrb_define_class_under_id(mrb, outer, name, class_at(mrb, what->text));
  if (what->kind == 2) MRB_SET_INSTANCE_TT(class, MRB_TT_DATA);
  return mrb_nil_value();
}

/* kind: 0 a module, 1 a class, 2 a class whose objects hold something of Rust's. */
int ngy_class(ngy_vm *vm, ngy_text outer, ngy_text name, ngy_text super, int kind)
{
  order what = { .vm = vm, .super = outer, .name = name, .text = super, .kind = kind };
  return guarded(vm, define_class, &what);
}

static mrb_value define_method(mrb_state *mrb, void *data)
{
  order *what = data;
  struct RClass *class = class_at(mrb, what->text);
  if (what->kind) class = mrb_singleton_class_ptr(mrb, mrb_obj_value(class));
  mrb_value spec = mrb_int_value(mrb, (mrb_int)what->number);
  mrb_method_t method;
  MRB_METHOD_FROM_PROC(method, mrb_proc_new_cfunc_with_env(mrb, native, 1, &spec));
  mrb_sym name = mrb_intern(mrb, what->name.bytes, what->name.size);
  mrb_define_method_raw(mrb, class, name, method);
  if (!what->kind && name == what->vm->initialize)
    mrb_define_class_method(mrb, class, "new", new_object, MRB_ARGS_ANY());
  return mrb_nil_value();
}

/* kind: 0 of objects, 1 of the class itself. */
int ngy_method(ngy_vm *vm, ngy_text class, ngy_text name, int kind, uint64_t spec)
{
  order what = { .vm = vm, .text = class, .name = name, .kind = kind, .number = spec };
  return guarded(vm, define_method, &what);
}

/* A method that always answers the same. */
static mrb_value always(mrb_state *mrb, mrb_value self)
{
  (void)self;
  return MRB_PROC_ENV(mrb->c->ci->proc)->stack[0];
}

static mrb_value define_always(mrb_state *mrb, void *data)
{
  order *what = data;
  mrb_value value = tree(mrb, what->value->bytes, what->value->size);
  mrb_method_t method;
  MRB_METHOD_FROM_PROC(method, mrb_proc_new_cfunc_with_env(mrb, always, 1, &value));
  mrb_define_method_raw(mrb, class_at(mrb, what->text), mrb_intern(mrb, what->name.bytes, what->name.size), method);
  return mrb_nil_value();
}

int ngy_always(ngy_vm *vm, ngy_text class, ngy_text name, const ngy_answer *value)
{
  order what = { .vm = vm, .text = class, .name = name, .value = value };
  return guarded(vm, define_always, &what);
}

static mrb_value define_constant(mrb_state *mrb, void *data)
{
  order *what = data;
  mrb_sym name = mrb_intern(mrb, what->name.bytes, what->name.size);
  mrb_value value = tree(mrb, what->value->bytes, what->value->size);
  mrb_define_const_id(mrb, class_at(mrb, what->text), name, value);
  return mrb_nil_value();
}

int ngy_constant(ngy_vm *vm, ngy_text class, ngy_text name, const ngy_answer *value)
{
  order what = { .vm = vm, .text = class, .name = name, .value = value };
  return guarded(vm, define_constant, &what);
}

static void refuse_source(mrb_state *mrb, struct mrb_parser_state *parser, mrbc_context *context)
{
  mrb_value text = parser->nerr > 0 && parser->error_buffer[0].message
    ? mrb_format(mrb, "line %d: %s", parser->error_buffer[0].lineno, parser->error_buffer[0].message)
    : mrb_str_new_lit(mrb, "cannot be compiled");
  mrb_parser_free(parser);
  mrbc_context_free(mrb, context);
  mrb_exc_raise(mrb, mrb_exc_new_str(mrb, mrb_class_get(mrb, "SyntaxError"), text));
}

static mrb_value compile(mrb_state *mrb, void *data)
{
  order *what = data;
  mrbc_context *context = mrbc_context_new(mrb);
  context->capture_errors = TRUE;
  mrb_value name = mrb_str_new(mrb, what->name.bytes, (mrb_int)what->name.size);
  mrbc_filename(mrb, context, mrb_str_to_cstr(mrb, name));
  context->lineno = (uint16_t)what->number;
  struct mrb_parser_state *parser = mrb_parse_nstring(mrb, what->text.bytes, what->text.size, context);
  if (!parser) { mrbc_context_free(mrb, context); mrb_exc_raise(mrb, mrb_obj_value(mrb->nomem_err)); }
  if (parser->nerr > 0) refuse_source(mrb, parser, context);
  struct RProc *script = mrb_generate_code(mrb, parser);
  if (!script) refuse_source(mrb, parser, context);
  mrb_parser_free(parser);
  mrbc_context_free(mrb, context);
  MRB_PROC_SET_TARGET_CLASS(script, mrb->object_class);
  mrb_ary_set(mrb, what->vm->roots, what->root, mrb_obj_value(script));
  return mrb_nil_value();
}

/* Compiles `source`, whose first line is `line` of `name`, and keeps it under `root`. */
int ngy_compile(ngy_vm *vm, ngy_text source, ngy_text name, uint16_t line, size_t root)
{
  order what = { .vm = vm, .text = source, .name = name, .number = line, .root = (mrb_int)root };
  return guarded(vm, compile, &what);
}

static mrb_value run_at_once(mrb_state *mrb, void *data)
{
  order *what = data;
  mrb_value script = mrb_ary_entry(what->vm->roots, what->root);
  mrb_top_run(mrb, mrb_proc_ptr(script), mrb_top_self(mrb), 0);
  if (mrb->exc) { mrb_value raised = mrb_obj_value(mrb->exc); mrb->exc = NULL; mrb_exc_raise(mrb, raised); }
  return mrb_nil_value();
}

/* Runs a compiled script outside of any fiber; it cannot wait. */
int ngy_run(ngy_vm *vm, size_t root)
{
  order what = { .vm = vm, .root = (mrb_int)root };
  return guarded(vm, run_at_once, &what);
}

static mrb_value make_fiber(mrb_state *mrb, void *data)
{
  order *what = data;
  mrb_value nagaya = mrb_obj_value(mrb_module_get(mrb, "Nagaya"));
  mrb_value fiber = mrb_funcall(mrb, nagaya, "__fiber", 0);
  if (mrb_type(fiber) != MRB_TT_FIBER) mrb_raise(mrb, E_TYPE_ERROR, "Fiber.new was replaced");
  ngy_claim_fiber(fiber);
  ngy_forget_match(mrb, (size_t)what->root);
  mrb_ary_set(mrb, what->vm->roots, what->root, fiber);
  return mrb_nil_value();
}

/* A fiber that runs scripts, kept under `root`. */
int ngy_fiber(ngy_vm *vm, size_t root)
{
  order what = { .vm = vm, .root = (mrb_int)root };
  return guarded(vm, make_fiber, &what);
}

/* A fiber whose block has ended begins it anew: all that Fiber#initialize leaves behind. Its registers
 * are emptied, since the collector may have looked at the fiber before they were written last. */
static void rearm(mrb_state *mrb, struct mrb_context *context)
{
  mrb_callinfo *ci = context->cibase;
  const struct RProc *block = ci->proc;
  struct REnv *environment = mrb_vm_ci_env(ci);
  if (environment) {
    mrb_vm_ci_env_set(ci, NULL);
    mrb_env_unshare(mrb, environment, TRUE);
  }
  for (int i = 0; i < block->body.irep->nregs; i++) context->stbase[i] = mrb_nil_value();
  mrb_vm_ci_target_class_set(ci, MRB_PROC_TARGET_CLASS(block));
  mrb_vm_ci_proc_set(ci, block);
  ci->stack = context->stbase;
  ci[1] = ci[0];
  context->ci = ci + 1;
  context->status = MRB_FIBER_CREATED;
}

/* Puts a fiber that is armed where its block has called this script: the steps up to there are the
 * same each time, and many. FALSE: they have to be gone. */
static mrb_bool call_script(mrb_state *mrb, ngy_vm *vm, struct mrb_context *context, mrb_value script)
{
  mrb_callinfo *base = context->cibase, *call = base + 1;
  if (context->status != MRB_FIBER_CREATED || base->proc->body.irep != vm->block || !mrb_proc_p(script)) return FALSE;
  const struct RProc *proc = mrb_proc_ptr(script);
  mrb_int registers = proc->body.irep->nregs;
  if (context->stbase + vm->script_at + registers >= context->stend || call + 1 >= context->ciend) return FALSE;
  ngy_forget_match(mrb, vm->match_root);
  base->pc = vm->behind_call;
  memset(call, 0, sizeof *call);
  call->stack = base->stack + vm->script_at;
  call->stack[0] = mrb_top_self(mrb);
  for (mrb_int i = 1; i <= registers; i++) call->stack[i] = mrb_nil_value();
  mrb_vm_ci_target_class_set(call, mrb->object_class);
  mrb_vm_ci_proc_set(call, proc);
  call[1].stack = call->stack + registers; /* whoever resumes a fiber writes there what its wait came to */
  context->ci = call;
  context->status = MRB_FIBER_SUSPENDED;
  return TRUE;
}

static mrb_value resume(mrb_state *mrb, void *data)
{
  order *what = data;
  ngy_vm *vm = what->vm;
  mrb_value fiber = mrb_ary_entry(vm->roots, what->root), value = mrb_nil_value();
  if (mrb_type(fiber) != MRB_TT_FIBER) mrb_raise(mrb, E_ARGUMENT_ERROR, "no such fiber");
  struct mrb_context *context = ((struct RFiber *)mrb_ptr(fiber))->cxt;
  ngy_swap_match(mrb, (size_t)what->root);
  mrb_bool is_called = FALSE;
  if (what->value->kind == NGY_INTEGER) {
    is_called = call_script(mrb, vm, context, mrb_ary_entry(vm->roots, (mrb_int)what->value->integer));
  }
  if (what->value->kind == NGY_RAISE) {
    mrb_ary_set(mrb, vm->roots, ROOT_PENDING, exception_of(mrb, what->value));
    vm->raising = 1;
    mrb->code_fetch_hook = ngy_fetched;
  } else if (!is_called) {
    value = value_of(mrb, vm, mrb_nil_value(), NULL, what->value);
  }
  value = mrb_fiber_resume(mrb, fiber, 1, &value);
  if (mrb->exc) { mrb_value raised = mrb_obj_value(mrb->exc); mrb->exc = NULL; mrb_exc_raise(mrb, raised); }
  vm->ended = context->status == MRB_FIBER_TERMINATED;
  if (vm->ended) rearm(mrb, context);
  return value;
}

/* Goes on with a fiber: what it waited for becomes the value of its call, or is raised there. */
int ngy_resume(ngy_vm *vm, size_t root, const ngy_answer *value)
{
  order what = { .vm = vm, .root = (mrb_int)root, .value = value };
  vm->ended = 0;
  return guarded(vm, resume, &what);
}

/* Whether the script that was resumed last has come to its end. */
int ngy_ended(const ngy_vm *vm) { return vm->ended; }
/* What the last call from Rust came to; there until the next. */
mrb_value ngy_result(const ngy_vm *vm) { return vm->result; }

void ngy_let_go(ngy_vm *vm, size_t root)
{
  if ((mrb_int)root < RARRAY_LEN(vm->roots)) mrb_ary_set(vm->mrb, vm->roots, (mrb_int)root, mrb_nil_value());
}

static mrb_value collect(mrb_state *mrb, void *data)
{
  (void)data;
  mrb_full_gc(mrb);
  return mrb_nil_value();
}

int ngy_collect(ngy_vm *vm) { return guarded(vm, collect, NULL); }
size_t ngy_roots_own(void) { return ROOTS_OWN; }
size_t ngy_bytes(const ngy_vm *vm) { return vm->bytes; }
size_t ngy_objects(const ngy_vm *vm) { return vm->mrb ? vm->mrb->gc.live : 0; }
uint64_t ngy_instructions(const ngy_vm *vm) { return vm->instructions; }
void ngy_count(ngy_vm *vm, int counting) { vm->counting = counting; vm->instructions = 0; }
