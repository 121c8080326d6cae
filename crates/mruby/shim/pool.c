/* Small blocks of one interpreter: nearly all that it asks for, some tens of bytes for some microseconds.
 *
 * One stretch of addresses, as long as the interpreter's memory budget, is cut into pages; a page has
 * blocks of one size. Which page a block lies in is told by its address, so blocks have no header, and
 * giving one back touches nothing but itself and its page's entry. What is full of half-used pages
 * leaves the rest to the system's allocator. A page that is empty may become one of another size.
 */
#include "shim.h"
#include <sys/mman.h>

#define PAGE_BYTES 8192
/* Pages without a block whose memory is kept for the next. */
#define SPARE_MAX 128

struct ngy_page {
  ngy_page *next, *previous; /* among those of its size with room, or those that are spare */
  void *given_back;          /* each block leads to the next */
  uint16_t size, capacity, used, begun;
};

static char *place_of(const ngy_pool *pool, const ngy_page *page)
{
  return pool->base + (size_t)(page - pool->pages) * PAGE_BYTES;
}

static void link_page(ngy_page **list, ngy_page *page)
{
  page->previous = NULL;
  page->next = *list;
  if (*list) (*list)->previous = page;
  *list = page;
}

static void unlink_page(ngy_page **list, ngy_page *page)
{
  if (page->previous) page->previous->next = page->next; else *list = page->next;
  if (page->next) page->next->previous = page->previous;
}

/* Pages, and what is known of each: of that, too, only what was ever used takes memory. */
static size_t stretch(size_t count) { return count * (PAGE_BYTES + sizeof(ngy_page)); }

/* Without a stretch of its own a pool is an empty one. */
void ngy_pool_open(ngy_pool *pool, size_t bytes_max)
{
#ifndef __SANITIZE_ADDRESS__
  size_t count = bytes_max / PAGE_BYTES;
  void *base = mmap(NULL, stretch(count), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return;
  madvise(base, stretch(count), MADV_NOHUGEPAGE);
  pool->base = base;
  pool->count = count;
  pool->pages = (ngy_page *)(pool->base + count * PAGE_BYTES);
#else
  (void)pool; (void)bytes_max; /* it is to see every block */
#endif
}

void ngy_pool_close(ngy_pool *pool)
{
  if (pool->base) munmap(pool->base, stretch(pool->count));
  pool->base = NULL;
  pool->count = 0;
}

static ngy_page *begin_page(ngy_pool *pool, size_t class)
{
  ngy_page *page = pool->spare;
  if (page) {
    unlink_page(&pool->spare, page);
    pool->spares--;
  } else if (pool->begun < pool->count) {
    page = &pool->pages[pool->begun++];
  } else {
    return NULL;
  }
  page->given_back = NULL;
  page->size = (uint16_t)((class + 1) * NGY_POOL_STEP);
  page->capacity = (uint16_t)(PAGE_BYTES / page->size);
  page->used = page->begun = 0;
  link_page(&pool->open[class], page);
  return page;
}

/* A block of at least `size` bytes, of 1 to NGY_POOL_BYTES_MAX; NULL when there is none. */
void *ngy_pool_take(ngy_pool *pool, size_t size)
{
  size_t class = (size - 1) / NGY_POOL_STEP;
  ngy_page *page = pool->open[class];
  if (!page && !(page = begin_page(pool, class))) return NULL;
  void *block = page->given_back;
  if (block) page->given_back = *(void **)block;
  else block = place_of(pool, page) + (size_t)page->size * page->begun++;
  if (++page->used == page->capacity) unlink_page(&pool->open[class], page);
  return block;
}

static ngy_page *page_of(const ngy_pool *pool, const void *block)
{
  return &pool->pages[(size_t)((const char *)block - pool->base) / PAGE_BYTES];
}

/* How many bytes a block of the pool has; 0 for any other. */
size_t ngy_pool_size(const ngy_pool *pool, const void *block)
{
  size_t offset = (size_t)((uintptr_t)block - (uintptr_t)pool->base);
  return offset < pool->count * PAGE_BYTES ? page_of(pool, block)->size : 0;
}

void ngy_pool_give_back(ngy_pool *pool, void *block)
{
  ngy_page *page = page_of(pool, block);
  ngy_page **open = &pool->open[page->size / NGY_POOL_STEP - 1];
  *(void **)block = page->given_back;
  page->given_back = block;
  if (page->used-- == page->capacity) link_page(open, page);
  /* The last page with room stays: the next block is likely of its size. */
  if (page->used > 0 || (!page->next && !page->previous)) return;
  unlink_page(open, page);
  if (pool->spares++ >= SPARE_MAX) madvise(place_of(pool, page), PAGE_BYTES, MADV_DONTNEED);
  link_page(&pool->spare, page);
}
