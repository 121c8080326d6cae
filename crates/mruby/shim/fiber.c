/* Fibers as scripts may use them: those they make themselves, never the one a hook runs in.
 *
 * That one belongs to the gateway. Whoever resumed it from another hook would go on with another
 * request's script as his own, and answer what that waits for.
 */
#include "shim.h"
#include <mruby/class.h>
#include <mruby/error.h>
#include <mruby/proc.h>

/* A flag of fibers that nobody else uses: it runs hooks. */
#define OF_HOOKS 1

void ngy_claim_fiber(mrb_value fiber)
{
  ((struct RFiber *)mrb_ptr(fiber))->flags |= OF_HOOKS;
}

mrb_bool ngy_is_claimed(const struct RFiber *fiber)
{
  return fiber && fiber->flags & OF_HOOKS;
}

static mrb_value resume(mrb_state *mrb, mrb_value self)
{
  const ngy_vm *vm = mrb->allocf_ud;
  if (ngy_is_claimed((struct RFiber *)mrb_ptr(self)))
    mrb_raise(mrb, mrb_class_get(mrb, "FiberError"),
              "this is the fiber that a hook runs in, which nobody else may resume: make one with Fiber.new");
  return vm->resume(mrb, self);
}

/* mruby's own ends in the C function that resumed the script when the fiber comes to its end. */
static mrb_value transfer(mrb_state *mrb, mrb_value self)
{
  (void)self;
  mrb_raise(mrb, E_NOTIMP_ERROR, "Fiber#transfer: use resume and Fiber.yield");
}

void ngy_prepare_fibers(mrb_state *mrb)
{
  ngy_vm *vm = mrb->allocf_ud;
  struct RClass *fiber = mrb_class_get(mrb, "Fiber"), *owner = fiber;
  vm->resume = MRB_METHOD_FUNC(mrb_method_search_vm(mrb, &owner, mrb_intern_lit(mrb, "resume")));
  mrb_define_method(mrb, fiber, "resume", resume, MRB_ARGS_ANY());
  mrb_define_method(mrb, fiber, "transfer", transfer, MRB_ARGS_ANY());
}
