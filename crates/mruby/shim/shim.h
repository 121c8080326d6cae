/* What Rust sees of mruby. Every function here is safe to call from Rust: none of them lets a
 * longjmp pass through its caller. Matched by src/raw.rs; a test compares sizes. */
#ifndef NAGAYA_SHIM_H
#define NAGAYA_SHIM_H

#include <mruby.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>

/* How a guarded call ended. */
enum { NGY_FINE, NGY_RAISED, NGY_LOST };

/* What a native answers; the interpreter's values are made after its Rust frame is gone. */
enum {
  NGY_NIL, NGY_TRUE, NGY_FALSE, NGY_INTEGER, NGY_FLOAT, NGY_BYTES, NGY_TREE,
  NGY_SELF, NGY_ARGUMENT, NGY_ATTACH, NGY_WAIT, NGY_RAISE, NGY_STAMP
};

/* What a value is, as far as Rust tells values apart. */
enum {
  NGY_IS_NIL, NGY_IS_FALSE, NGY_IS_TRUE, NGY_IS_INTEGER, NGY_IS_FLOAT, NGY_IS_SYMBOL,
  NGY_IS_STRING, NGY_IS_ARRAY, NGY_IS_HASH, NGY_IS_OTHER
};

typedef struct ngy_answer {
  int64_t integer;
  double number;
  const char *bytes;
  size_t size;
  const char *name; /* the class to raise */
  size_t name_size;
  int32_t kind;
} ngy_answer;

typedef struct ngy_text {
  const char *bytes;
  size_t size;
} ngy_text;

/* The Rust side of an interpreter. */
typedef struct ngy_host {
  void *state;
  void (*dispatch)(void *state, uint32_t native, mrb_value self, size_t argc, const mrb_value *argv, ngy_answer *answer);
  void (*cancel)(void *state);
  void (*dropped)(void *state, uint64_t handle);
  void (*failed)(void *state, ngy_text class_name, ngy_text message, ngy_text backtrace);
} ngy_host;

typedef struct ngy_block ngy_block;
typedef struct ngy_page ngy_page;

/* Small blocks: up to so many bytes, in sizes so far apart. */
#define NGY_POOL_BYTES_MAX 512
#define NGY_POOL_STEP 16

typedef struct ngy_pool {
  char *base;
  ngy_page *pages;         /* of the whole stretch */
  size_t count, begun;     /* all, and those that were ever used */
  ngy_page *open[NGY_POOL_BYTES_MAX / NGY_POOL_STEP]; /* with room, by size */
  ngy_page *spare;         /* without a block */
  size_t spares;
} ngy_pool;

/* What there must be for an interpreter to begin: where mruby itself finds no memory meanwhile, it
 * ends the process. Matched by src/raw.rs. */
#define NGY_OPENING_BYTES ((size_t)512 << 10)

/* What the interpreters of one thread may hold together. Matched by src/memory.rs. */
typedef struct ngy_memory {
  size_t bytes, bytes_max;
  size_t vms;
  size_t share;            /* of each; all, while there is one */
  size_t common;           /* those above their share grow while all hold no more than this */
} ngy_memory;

/* Methods of String that take a Regexp too, and the global variables a match is told by. */
#define NGY_TEXTS 7
#define NGY_MATCH_NAMES 14

typedef struct ngy_vm {
  mrb_state *mrb;
  ngy_host host;
  ngy_pool pool;           /* small allocations */
  ngy_block *blocks;       /* all others, so that a lost interpreter can be freed */
  size_t bytes;
  ngy_memory *memory;      /* that of all */
  mrb_value roots;         /* what Rust holds, by index */
  uint64_t cpu_ns_max;     /* between two waits */
  uint64_t started_ns;     /* 0 until a tick sees this run */
  uint64_t instructions;   /* counted while `counting` */
  sigjmp_buf escape;
  volatile sig_atomic_t inside; /* in mruby's own code, not in Rust's or the allocator's */
  volatile sig_atomic_t over;   /* its time is up */
  volatile sig_atomic_t sealed; /* no budget applies: the product's own start-up code */
  int raising, counting, killed;
  int ended;               /* the script that was resumed last */
  mrb_value result;        /* what the last call from Rust came to; not kept from being collected */
  mrb_func_t texts[NGY_TEXTS];      /* methods of String that ours stand before */
  mrb_func_t resume;                /* mruby's Fiber#resume */
  mrb_sym names[NGY_MATCH_NAMES], initialize;
  const struct mrb_irep *block;     /* what fibers of hooks begin with, once known */
  const mrb_code *behind_call;      /* where it goes on when its script has ended */
  mrb_int script_at;                /* the script's first register among its own */
  size_t match_root;                /* whose `$~` it is that is seen */
  int has_match;
} ngy_vm;

/* Roots the shim keeps for itself. */
enum { ROOT_PENDING, ROOT_KILLER, ROOT_MATCHES, ROOTS_OWN };

/* The interpreter at work on this thread. */
extern __thread ngy_vm *ngy_running;
/* What objects of ours hold: something of Rust's, or a number. */
extern const struct mrb_data_type ngy_attached, ngy_stamped;

void ngy_pool_open(ngy_pool *pool, size_t bytes_max);
void ngy_pool_close(ngy_pool *pool);
void *ngy_pool_take(ngy_pool *pool, size_t size);
size_t ngy_pool_size(const ngy_pool *pool, const void *block);
void ngy_pool_give_back(ngy_pool *pool, void *block);
void *ngy_allocate(mrb_state *mrb, void *pointer, size_t size, void *data);
void ngy_fetched(mrb_state *mrb, const struct mrb_irep *irep, const mrb_code *pc, mrb_value *registers);
void ngy_swap_match(mrb_state *mrb, size_t root);
void ngy_forget_match(mrb_state *mrb, size_t root);
void ngy_claim_fiber(mrb_value fiber);
mrb_bool ngy_is_claimed(const struct RFiber *fiber);
void ngy_prepare_fibers(mrb_state *mrb);
void ngy_prepare_times(mrb_state *mrb);
void ngy_prepare_missing(mrb_state *mrb);
void ngy_prepare_patterns(mrb_state *mrb, struct RClass *nagaya);
int ngy_enter_memory(ngy_vm *vm, ngy_memory *memory);
void ngy_close(ngy_vm *vm);
void ngy_discard(ngy_vm *vm);

#endif
