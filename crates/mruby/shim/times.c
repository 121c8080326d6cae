/* Methods of Time, which ask libc for the time zone.
 *
 * libc looks at it under a lock of the whole process. A run that is left in the middle of that
 * (room.c) would leave the lock taken for good, so these count as outside of the interpreter.
 */
#include "shim.h"
#include <mruby/array.h>
#include <mruby/class.h>
#include <mruby/error.h>
#include <mruby/proc.h>

static const char *const of_class[] = { "at", "gm", "local", "mktime", "now", "utc" };
static const char *const of_objects[] = {
  "+", "-", "to_s", "inspect", "asctime", "ctime", "getgm", "getlocal", "getutc", "gmtime", "localtime",
  "utc", "zone", "initialize", "initialize_copy"
};

typedef struct call { mrb_func_t method; mrb_value self; } call;

static mrb_value called(mrb_state *mrb, void *data)
{
  call *what = data;
  return what->method(mrb, what->self);
}

/* One of them, in this very frame; which is in what its method was made with. */
static mrb_value timed(mrb_state *mrb, mrb_value self)
{
  ngy_vm *vm = mrb->allocf_ud;
  const mrb_value *made_with = MRB_PROC_ENV(mrb->c->ci->proc)->stack;
  call what = { (mrb_func_t)(uintptr_t)mrb_integer(made_with[0]), self };
  if (mrb_true_p(made_with[1]) && mrb_get_argc(mrb) > 0) mrb_argnum_error(mrb, mrb_get_argc(mrb), 0, 0);
  mrb_bool raised = FALSE;
  sig_atomic_t inside = vm->inside;
  vm->inside = 0;
  mrb_value value = mrb_protect_error(mrb, called, &what, &raised);
  vm->inside = inside;
  if (raised) mrb_exc_raise(mrb, value);
  return value;
}

static void wrap(mrb_state *mrb, struct RClass *class, const char *const *names, size_t count)
{
  for (size_t i = 0; i < count; i++) {
    mrb_sym name = mrb_intern_cstr(mrb, names[i]);
    struct RClass *owner = class;
    mrb_method_t method = mrb_method_search_vm(mrb, &owner, name);
    if (MRB_METHOD_UNDEF_P(method) || !MRB_METHOD_FUNC_P(method)) continue;
    mrb_value made_with[2];
    made_with[0] = mrb_int_value(mrb, (mrb_int)(uintptr_t)MRB_METHOD_FUNC(method));
    made_with[1] = mrb_bool_value(MRB_METHOD_NOARG_P(method));
    MRB_METHOD_FROM_PROC(method, mrb_proc_new_cfunc_with_env(mrb, timed, 2, made_with));
    mrb_define_method_raw(mrb, class, name, method);
  }
}

void ngy_prepare_times(mrb_state *mrb)
{
  struct RClass *time = mrb_class_get(mrb, "Time");
  wrap(mrb, mrb_singleton_class_ptr(mrb, mrb_obj_value(time)), of_class, sizeof of_class / sizeof *of_class);
  wrap(mrb, time, of_objects, sizeof of_objects / sizeof *of_objects);
}
