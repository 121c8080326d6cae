/* What an interpreter may take: memory, counted and capped, and CPU time between two waits. */
#include "shim.h"
#include <mruby/array.h>
#include <mruby/error.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* A run this much longer than its budget, with no instruction fetched since, is inside one long C call. */
#define STUCK_NS 45000000ull

__thread ngy_vm *ngy_running;

/* ---- memory: counted, capped, and freed as a whole when an interpreter is lost ---- */

struct ngy_block {
  ngy_block *next, *previous;
  size_t size, padding; /* 16-byte alignment of what follows */
};

/* An interpreter above its share may have what is common, and what is left is for those below theirs. */
static int fits(const ngy_vm *vm, size_t more)
{
  const ngy_memory *all = vm->memory;
  if (more > all->bytes_max - all->bytes) return 0;
  return vm->bytes + more <= all->share || all->bytes + more <= all->common;
}

static void count(ngy_vm *vm, size_t before, size_t after)
{
  vm->bytes += after - before;
  vm->memory->bytes += after - before;
}

static void divide(ngy_memory *memory)
{
  int shared = memory->vms > 1;
  memory->share = shared ? memory->bytes_max / memory->vms : memory->bytes_max;
  memory->common = shared ? memory->bytes_max / 4 * 3 : memory->bytes_max;
}

/* Whether there is enough for another to begin. Up to so many bytes it has them then. */
int ngy_enter_memory(ngy_vm *vm, ngy_memory *memory)
{
  vm->memory = memory;
  memory->vms++;
  divide(memory);
  return fits(vm, NGY_OPENING_BYTES);
}

static void leave_memory(ngy_vm *vm)
{
  if (!vm->memory) return;
  count(vm, vm->bytes, 0);
  vm->memory->vms--;
  divide(vm->memory);
  vm->memory = NULL;
}

static void unlink_block(ngy_vm *vm, ngy_block *block)
{
  if (block->previous) block->previous->next = block->next; else vm->blocks = block->next;
  if (block->next) block->next->previous = block->previous;
}

/* As realloc, for blocks of the system's allocator. */
static void *change(ngy_vm *vm, ngy_block *block, size_t size)
{
  size_t before = block ? block->size : 0;
  if (size == 0) {
    if (block) { unlink_block(vm, block); count(vm, before, 0); free(block); }
    return NULL;
  }
  if (size > before && !fits(vm, size - before)) return NULL;
  if (block) unlink_block(vm, block);
  ngy_block *fresh = realloc(block, sizeof(ngy_block) + size);
  ngy_block *kept = fresh ? fresh : block;
  if (!kept) return NULL;
  kept->previous = NULL;
  kept->next = vm->blocks;
  if (vm->blocks) vm->blocks->previous = kept;
  vm->blocks = kept;
  if (!fresh) return NULL;
  count(vm, before, size);
  fresh->size = size;
  return fresh + 1;
}

/* A small block counts as many bytes as it takes. */
static void *take(ngy_vm *vm, size_t size)
{
  if (size > NGY_POOL_BYTES_MAX) return change(vm, NULL, size);
  size_t taken = (size + NGY_POOL_STEP - 1) / NGY_POOL_STEP * NGY_POOL_STEP;
  if (!fits(vm, taken)) return NULL;
  void *block = ngy_pool_take(&vm->pool, size);
  if (!block) return change(vm, NULL, size);
  count(vm, 0, taken);
  return block;
}

static void give_back(ngy_vm *vm, void *pointer, size_t small)
{
  if (small == 0) { change(vm, (ngy_block *)pointer - 1, 0); return; }
  count(vm, small, 0);
  ngy_pool_give_back(&vm->pool, pointer);
}

static void *resized(ngy_vm *vm, void *pointer, size_t small, size_t size)
{
  if (small == 0 && size > NGY_POOL_BYTES_MAX) return change(vm, (ngy_block *)pointer - 1, size);
  if (size <= small && size + NGY_POOL_STEP > small) return pointer;
  size_t before = small ? small : ((ngy_block *)pointer - 1)->size;
  void *fresh = take(vm, size);
  if (!fresh) return size < before ? pointer : NULL;
  memcpy(fresh, pointer, before < size ? before : size);
  give_back(vm, pointer, small);
  return fresh;
}

static void *reallocated(ngy_vm *vm, void *pointer, size_t size)
{
  if (!pointer) return size ? take(vm, size) : NULL;
  size_t small = ngy_pool_size(&vm->pool, pointer);
  if (size) return resized(vm, pointer, small, size);
  give_back(vm, pointer, small);
  return NULL;
}

void *ngy_allocate(mrb_state *mrb, void *pointer, size_t size, void *data)
{
  ngy_vm *vm = data;
  sig_atomic_t inside = vm->inside;
  (void)mrb;
  vm->inside = 0;
  void *fresh = reallocated(vm, pointer, size);
  vm->inside = inside;
  return fresh;
}

/* Frees all that an interpreter holds which was left in the middle of something. It is still to be discarded. */
void ngy_empty(ngy_vm *vm)
{
  for (ngy_block *block = vm->blocks, *next; block; block = next) { next = block->next; free(block); }
  vm->blocks = NULL;
  vm->mrb = NULL;
  ngy_pool_close(&vm->pool);
  leave_memory(vm);
}

void ngy_discard(ngy_vm *vm)
{
  ngy_empty(vm);
  free(vm);
}

void ngy_close(ngy_vm *vm)
{
  vm->sealed = 1;
  mrb_close(vm->mrb);
  ngy_discard(vm);
}

/* ---- time: a timer on the thread's own CPU clock ends a run that takes too much ---- */

static uint64_t cpu_now_ns(void)
{
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

static void kill_run(ngy_vm *vm, mrb_state *mrb)
{
  mrb_value killer = mrb_ary_entry(vm->roots, ROOT_KILLER);
  if (mrb_nil_p(killer)) {
    struct RClass *class = mrb_class_get(mrb, "ScriptBudgetError");
    killer = mrb_exc_new(mrb, class, "used up its CPU time without waiting", 36);
    mrb_ary_set(mrb, vm->roots, ROOT_KILLER, killer);
    vm->killed = 1;
  }
  mrb_exc_raise(mrb, killer);
}

/* Called before every instruction while armed. A run whose time is up raises again and again: a
 * `rescue` or `ensure` that catches it gets no further than its own first instruction. */
void ngy_fetched(mrb_state *mrb, const struct mrb_irep *irep, const mrb_code *pc, mrb_value *registers)
{
  ngy_vm *vm = mrb->allocf_ud;
  (void)irep; (void)registers;
  if (vm->counting) vm->instructions++;
  if (vm->over) {
    /* Raised here, not at the instruction before: a handler that was just entered does not catch it again. */
    mrb->c->ci->pc = pc + 1;
    kill_run(vm, mrb);
  }
  if (vm->raising) {
    mrb_value pending = mrb_ary_entry(vm->roots, ROOT_PENDING);
    vm->raising = 0;
    mrb->c->ci->pc = pc; /* at the call that waited: resuming has forgotten where that was */
    mrb_exc_raise(mrb, pending);
  }
  if (!vm->counting) mrb->code_fetch_hook = NULL;
}

static void ticked(int signal, siginfo_t *info, void *context)
{
  ngy_vm *vm = ngy_running;
  (void)signal; (void)info; (void)context;
  if (!vm || vm->sealed) return;
  uint64_t now = cpu_now_ns();
  if (vm->started_ns == 0) vm->started_ns = now;
  /* The next tick may come within this one and begin the run later than `now`. */
  uint64_t used = now > vm->started_ns ? now - vm->started_ns : 0;
  if (used < vm->cpu_ns_max) return;
  vm->over = 1;
  vm->mrb->code_fetch_hook = ngy_fetched;
  if (used > vm->cpu_ns_max + STUCK_NS && vm->inside) siglongjmp(vm->escape, 1);
}

int ngy_ticker_start(uint64_t period_ns, void **ticker)
{
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_sigaction = ticked;
  /* Not masked while handled: `ticked` may leave by siglongjmp. */
  action.sa_flags = SA_SIGINFO | SA_RESTART | SA_NODEFER;
  sigemptyset(&action.sa_mask);
  if (sigaction(SIGVTALRM, &action, NULL) != 0) return -1;
  struct sigevent event;
  memset(&event, 0, sizeof event);
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = SIGVTALRM;
  event._sigev_un._tid = (pid_t)syscall(SYS_gettid);
  timer_t timer;
  if (timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer) != 0) return -1;
  struct itimerspec every = { { 0, (long)period_ns }, { 0, (long)period_ns } };
  if (timer_settime(timer, 0, &every, NULL) != 0) { timer_delete(timer); return -1; }
  *ticker = timer;
  return 0;
}

void ngy_ticker_stop(void *ticker)
{
  timer_delete((timer_t)ticker);
}
