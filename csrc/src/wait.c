/* Sleeping readers.
 *
 * The word has bit 0 = somebody waits, bits 1-31 = generation. A reader sets bit 0, looks at the list once more,
 * and sleeps on exactly the value that it made. A writer that finds bit 0 set after its commit moves the word to the
 * next generation with bit 0 clear and wakes everybody. A plain flag would lose wake-ups with two readers: one could
 * re-arm the flag between the other's look at the list and its sleep. */
#include "wait.h"

#include <errno.h>

#include "cursor.h"
#include "plat.h"
#include "ytp/wait.h"

#define FIRST_NAP_NS ((uint64_t)50000) /* files without a wait word: naps grow from here to the park bound */
#define SPIN_SLICE_NS ((uint64_t)1000000)

void ytpi_wait_wake(ytpi_a32 *word)
{
    uint32_t value = ytpi_load_relaxed(word);
    while (value & 1) {
        /* WAIT: pairs with the sleep in ytp_cursor_wait(); changes the value that every sleeper sleeps on. */
        if (ytpi_cas32_seq(word, &value, value + 1)) {
            ytpi_plat_wake_all(word);
            return;
        }
    }
}

static uint32_t arm(ytp_yamal_t *y)
{
    ytpi_aux_block_t *block = y->aux.block;
    /* Without write permission the word can not be armed, only watched. */
    if (y->readonly)
        return ytpi_load_seq(&block->wait_word);
    /* WAIT: pairs with the load in ytpi_wait_notify(). */
    return ytpi_fetch_or_seq(&block->wait_word, 1) | 1;
}

ytp_wait_token_t ytp_bus_arm(ytp_bus_t *bus)
{
    ytp_yamal_t *y = ytp_bus_yamal(bus);
    ytp_wait_token_t token = {NULL, 0};
    if (y->aux.block) {
        token.value = arm(y);
        token.word = (const uint32_t *)(const void *)&y->aux.block->wait_word;
    }
    return token;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* One bounded sleep. */
static void park(ytp_cursor_t *c, uint64_t limit_ns)
{
    ytp_yamal_t *y = c->y;

    if (y->aux.block == NULL || y->readonly) {
        c->nap_ns = c->nap_ns == 0 ? FIRST_NAP_NS : smaller(c->nap_ns * 2, limit_ns);
        limit_ns = smaller(limit_ns, c->nap_ns);
    }
    if (y->aux.block == NULL) {
        ytpi_plat_sleep(limit_ns);
        return;
    }
    uint32_t value = arm(y);
    if (!ytpi_cursor_ready_seq(c))
        (void)ytpi_plat_wait(&y->aux.block->wait_word, value, limit_ns);
}

bool ytp_cursor_look(const ytp_cursor_t *c, uint32_t looks)
{
    while (!ytp_cursor_ready(c)) {
        if (looks-- == 0)
            return false;
        ytpi_pause();
    }
    return true;
}

static int found(ytp_cursor_t *c)
{
    c->nap_ns = 0;
    c->waited_at = YTPI_NOWHERE;
    return YTP_OK;
}

int ytp_cursor_wait(ytp_cursor_t *c, uint32_t spins, uint64_t park_ns, uint64_t timeout_ns, ytp_error_t *err)
{
    YTPI_TRY(ytpi_usable(c->y, err));
    if (ytp_cursor_look(c, c->waited_at == c->position ? 0 : spins))
        return found(c);
    if (timeout_ns == 0)
        return YTP_END;
    uint64_t start = ytpi_plat_monotonic_ns();
    if (park_ns == 0) {
        uint64_t slice = smaller(SPIN_SLICE_NS, timeout_ns);
        while (!ytp_cursor_look(c, 64) && ytpi_plat_monotonic_ns() - start < slice)
            ;
    } else {
        park(c, smaller(park_ns, timeout_ns));
    }
    if (ytp_cursor_ready(c))
        return found(c);
    c->waited_at = c->position;
    YTPI_TRY(ytpi_usable(c->y, err));
    return ytpi_plat_monotonic_ns() - start >= timeout_ns ? YTP_END : YTP_OK;
}

uint32_t ytp_wait_value(const uint32_t *word)
{
    return ytpi_load_seq((const ytpi_a32 *)(const void *)word);
}

void ytp_wait_ring(uint32_t *word)
{
    ytpi_fetch_add((ytpi_a32 *)(void *)word, 1);
    ytpi_plat_wake_all((ytpi_a32 *)(void *)word);
}

int ytp_wait_many(const ytp_wait_token_t *tokens, unsigned count, uint64_t timeout_ns)
{
    const uint32_t *words[128];
    uint32_t values[128];
    unsigned used = 0;

    for (unsigned i = 0; i < count && used < 128; i++) {
        if (tokens[i].word) {
            words[used] = tokens[i].word;
            values[used++] = tokens[i].value;
        }
    }
    int e = used ? ytpi_plat_wait_many(words, values, used, timeout_ns) : ENOSYS;
    if (e == ENOSYS || e == EINVAL || e == EPERM)
        ytpi_plat_sleep(smaller(timeout_ns, used ? SPIN_SLICE_NS : timeout_ns));
    return YTP_OK;
}
