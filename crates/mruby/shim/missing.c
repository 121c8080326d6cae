/* A method that is not there: what is said of it, in the words of Ruby itself. */
#include "shim.h"
#include <mruby/array.h>
#include <mruby/class.h>
#include <mruby/error.h>
#include <mruby/opcode.h>
#include <mruby/proc.h>

/* What lacks a method, in Ruby's own words. */
static const char *described(mrb_state *mrb, mrb_value self, const char **name)
{
  *name = "";
  switch (mrb_type(self)) {
  case MRB_TT_FALSE: return mrb_nil_p(self) ? "nil" : "false";
  case MRB_TT_TRUE: return "true";
  case MRB_TT_CLASS: *name = mrb_class_name(mrb, mrb_class_ptr(self)); return "class ";
  case MRB_TT_MODULE: *name = mrb_class_name(mrb, mrb_class_ptr(self)); return "module ";
  default: break;
  }
  if (mrb_obj_eq(mrb, self, mrb_top_self(mrb))) return "main";
  *name = mrb_obj_classname(mrb, self);
  return "an instance of ";
}

/* Whether the call under way is a `super`: three bytes that name the method they stand in. */
static mrb_bool is_super(const struct mrb_context *context, mrb_sym name)
{
  const mrb_callinfo *caller = context->ci - 1;
  if (context->ci <= context->cibase || caller->mid != name) return FALSE;
  if (!caller->proc || MRB_PROC_CFUNC_P(caller->proc)) return FALSE;
  const mrb_code *start = caller->proc->body.irep->iseq;
  return caller->pc && caller->pc - start >= 3 && caller->pc[-3] == OP_SUPER;
}

/* BasicObject#method_missing: mruby's own says which method is missing, but not of what. */
static mrb_value missing(mrb_state *mrb, mrb_value self)
{
  mrb_sym name;
  const mrb_value *rest;
  mrb_int count;
  mrb_get_args(mrb, "n*!", &name, &rest, &count);
  mrb_bool super = is_super(mrb->c, name);
  mrb->c->ci->mid = 0; /* the call itself is what failed */
  mrb_value arguments = mrb_ary_new_from_values(mrb, count, rest);
  const char *called, *kind = described(mrb, self, &called);
  const char *what = super ? "no superclass method" : "undefined method";
  mrb_no_method_error(mrb, name, arguments, "%s '%n' for %s%s", what, name, kind, called);
}

void ngy_prepare_missing(mrb_state *mrb)
{
  mrb_define_method(mrb, mrb_class_get(mrb, "BasicObject"), "method_missing", missing, MRB_ARGS_ANY());
}
