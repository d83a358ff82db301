/* Layer 0: the yamal container.
 *
 * A yamal file is a memory-mapped, append-only set of linked lists of nodes. Two formats exist and are
 * told apart by their magic when a file is opened:
 *
 *   YAMAL000 (YTP_FORMAT_YTP)     one list; header 32 bytes
 *     0 size    reservation counter: offset of the next free byte
 *     8 next    first committed node, 0 if none
 *    16 prev    hint to a node near the tail, 0 = the header itself
 *    24 magic   "YAMAL000"
 *   node: size(8) next(8) prev(8) payload...
 *
 *   YAMAL001 (YTP_FORMAT_YAMAL8)  sixteen lists; header 536 bytes
 *     0 magic   "YAMAL001"
 *     8 size    reservation counter
 *    16 + 32*i  head of list i: size next prev seqno
 *   528 closable 1 closable, 2 not closable
 *   node: size(8) next(8) prev(8) seqno(8) payload...
 *
 * Container fields are little-endian. A node starts 8-byte aligned and never crosses a page of
 * YTP_PAGE_SIZE bytes. docs/format.md holds every byte.
 *
 * A *position* is the offset of the node (or list head) that stands before the message to be read next.
 * It can be stored and used again later, by any process. */
#ifndef YTP_YAMAL_H
#define YTP_YAMAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ytp/error.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifndef YTP_PAGE_SIZE
#define YTP_PAGE_SIZE ((uint64_t)8 << 20)
#endif

/* The lists of a YAMAL001 file. A YAMAL000 file has list 0 only. */
#define YTP_LIST_DATA 0u
#define YTP_LIST_ANNOUNCE 1u
#define YTP_LIST_SUBSCRIBE 2u
#define YTP_LIST_INDEX 3u
#define YTP_LIST_COUNT 16u

typedef struct ytp_yamal ytp_yamal_t;

typedef enum ytp_format {
    YTP_FORMAT_ANY = 0, /* open: whatever the file is; create: YTP_FORMAT_YTP */
    YTP_FORMAT_YTP = 1,
    YTP_FORMAT_YAMAL8 = 2,
} ytp_format_t;

typedef enum ytp_open_mode {
    YTP_OPEN_READ = 0,   /* existing file, read-only */
    YTP_OPEN_WRITE = 1,  /* existing file, read and append */
    YTP_OPEN_CREATE = 2, /* append, create when missing */
    YTP_OPEN_NEW = 3,    /* append, must not exist */
} ytp_open_mode_t;

typedef struct ytp_open_options {
    ytp_open_mode_t mode;
    ytp_format_t format;
    uint32_t permissions;   /* of a new file; 0 means 0600 */
    bool closable;          /* new YAMAL001 files: lists can be closed */
    bool durable;           /* every commit returns after its data is on the disk */
    uint64_t populate;      /* bytes kept allocated and populated ahead of the tail; 0 = no helper thread */
    uint64_t address_space; /* bytes of address space to reserve; 0 = 256 GiB */
} ytp_open_options_t;

/* Opens or creates a file. *out receives a handle with one reference. A foreign file is recognised
 * before anything in it is changed; a new file appears under its name complete or not at all.
 * Blocks on the file system. Errors: SYS, FORMAT, TRUNCATED, NOSPACE, NOMEM, MISMATCH, INVALID. */
YTP_API int ytp_yamal_open(const char *path, const ytp_open_options_t *options, ytp_yamal_t **out, ytp_error_t *err);

/* Adds a reference. Any thread. */
YTP_API ytp_yamal_t *ytp_yamal_retain(ytp_yamal_t *y);

/* Drops a reference; the last one unmaps the file and frees the handle. NULL is allowed. */
YTP_API void ytp_yamal_release(ytp_yamal_t *y);

/* Ends the handle: closes the descriptor and stops helper threads. Memory stays mapped until the last
 * release. Later calls return YTP_ERR_HANDLE. Idempotent, any thread. */
YTP_API void ytp_yamal_close(ytp_yamal_t *y);

YTP_API const char *ytp_yamal_path(const ytp_yamal_t *y);
YTP_API ytp_format_t ytp_yamal_format(const ytp_yamal_t *y);
YTP_API bool ytp_yamal_readonly(const ytp_yamal_t *y);
YTP_API bool ytp_yamal_closable(const ytp_yamal_t *y);

/* Returns 0 while the handle can be used, YTP_ERR_HANDLE after close, YTP_ERR_TRUNCATED after the file
 * shrank under the mapping (views then read zeros). One load; for callers that hold views. */
YTP_API int ytp_yamal_check(const ytp_yamal_t *y, ytp_error_t *err);

/* Largest payload that ytp_yamal_reserve accepts. */
YTP_API size_t ytp_yamal_max_payload(const ytp_yamal_t *y);

typedef struct ytp_file_info {
    uint64_t file_size;     /* length of the file */
    uint64_t reserved_size; /* reservation counter */
    uint64_t mapped_size;   /* bytes mapped by this handle */
    uint64_t durable;       /* position known to be on disk, or YTP_NO_OFFSET when unknown */
    bool has_aux;           /* the file carries our wait word and index */
    bool unlinked;          /* the name is gone or leads to another file */
    uint64_t created;       /* ns since the epoch; 0 = the file does not say */
} ytp_file_info_t;

YTP_API int ytp_yamal_info(ytp_yamal_t *y, ytp_file_info_t *out, ytp_error_t *err);

/* --- writing: any thread, any number of processes; lock-free except when the file must grow --- */

/* Takes space for a payload of `size` bytes (1 .. max_payload). *payload is writable until the commit;
 * nobody sees it before. A reservation that is never committed stays an invisible hole.
 * Errors: READONLY, TOOLARGE, NOSPACE, SYS, CORRUPT (counter), HANDLE, TRUNCATED. */
YTP_API int ytp_yamal_reserve(ytp_yamal_t *y, size_t size, void **payload, uint64_t *offset, ytp_error_t *err);

/* Publishes one reserved node at the end of a list. After success every reader sees it, whole.
 * Lock-free. Errors: CLOSED, CORRUPT, HANDLE, INVALID. */
YTP_API int ytp_yamal_commit(ytp_yamal_t *y, unsigned list, uint64_t offset, ytp_error_t *err);

/* A private chain of reserved nodes that is published by one commit: all of it or nothing, contiguous. */
typedef struct ytp_batch {
    uint64_t first;
    uint64_t last;
    uint64_t count;
} ytp_batch_t;

/* Appends a reserved node to the chain; start with a zeroed batch. Single owner. */
YTP_API int ytp_batch_add(ytp_yamal_t *y, ytp_batch_t *batch, uint64_t offset, ytp_error_t *err);
YTP_API int ytp_batch_commit(ytp_yamal_t *y, unsigned list, ytp_batch_t *batch, ytp_error_t *err);

/* Closes a list for good (closable YAMAL001 files). Idempotent. Errors: READONLY, MISMATCH, INVALID. */
YTP_API int ytp_yamal_close_list(ytp_yamal_t *y, unsigned list, ytp_error_t *err);
/* Returns 1 when closed, 0 when open, or a negative code. */
YTP_API int ytp_yamal_list_closed(ytp_yamal_t *y, unsigned list, ytp_error_t *err);

/* Ends a YAMAL000 file with a seal message behind which no writer of this library appends. Idempotent. */
YTP_API int ytp_yamal_seal(ytp_yamal_t *y, uint64_t time, ytp_error_t *err);

/* --- reading: any thread; wait-free --- */

typedef struct ytp_node {
    uint64_t offset; /* of the node */
    uint64_t prev;   /* of its predecessor */
    uint64_t seqno;  /* YAMAL001: the stored number; YAMAL000: 0 */
    const void *payload;
    size_t size;
} ytp_node_t;

/* Position before the first message of a list. */
YTP_API uint64_t ytp_yamal_begin(const ytp_yamal_t *y, unsigned list);

/* Position after the last committed message (walks from the hint to the true tail). */
YTP_API int ytp_yamal_end(ytp_yamal_t *y, unsigned list, uint64_t *position, ytp_error_t *err);

/* Reads the message after *position and moves *position onto it. Returns YTP_END or YTP_END_CLOSED and
 * leaves *position alone at the end. Every hop is checked. Errors: CORRUPT, TRUNCATED, HANDLE. */
YTP_API int ytp_yamal_next(ytp_yamal_t *y, unsigned list, uint64_t *position, ytp_node_t *node, ytp_error_t *err);

/* Reads the message at *position and moves *position before it; YTP_END at the beginning. */
YTP_API int ytp_yamal_prev(ytp_yamal_t *y, unsigned list, uint64_t *position, ytp_node_t *node, ytp_error_t *err);

/* Checks that a stored position is a node or head of this list, as far as that can be seen there. */
YTP_API int ytp_yamal_seek(ytp_yamal_t *y, unsigned list, uint64_t position, ytp_error_t *err);

/* --- durability --- */

/* Writes everything committed so far to the disk and moves the durable mark. Blocks. */
YTP_API int ytp_yamal_sync(ytp_yamal_t *y, ytp_error_t *err);

#ifdef __cplusplus
}
#endif
#endif
