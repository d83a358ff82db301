/* See supply.h. */
#include "supply.h"

#include <signal.h>
#include <string.h>

#include "plat.h"
#include "yamal.h"

#define STEP ((uint64_t)1 << 20)         /* populated at a time, so that a stop is noticed soon */
#define START_AFTER ((uint64_t)64 << 10) /* a writer of less than this never starts the thread */
#define NEVER UINT64_MAX

bool ytpi_supply_init(ytp_yamal_t *y, uint64_t ahead)
{
    ytpi_supply_t *s = &y->supply;

    memset(s, 0, sizeof *s);
    if (!ytpi_mutex_init(&s->lock))
        return false;
    if (pthread_cond_init(&s->wake, NULL) != 0) {
        ytpi_mutex_destroy(&s->lock);
        return false;
    }
    if (pthread_cond_init(&s->idle, NULL) != 0) {
        (void)pthread_cond_destroy(&s->wake);
        ytpi_mutex_destroy(&s->lock);
        return false;
    }
    s->ahead = ahead;
    ytpi_store_relaxed(&s->trigger, ahead ? ytpi_le64(ytpi_load_relaxed(y->counter)) + START_AFTER : NEVER);
    return true;
}

/* Allocates, maps and populates [from, to). False when the disk is full or the handle is gone: writers will meet the
 * same error themselves and report it. */
static bool populate(ytp_yamal_t *y, uint64_t from, uint64_t to)
{
    if (ytpi_map_grow(&y->map, to, NULL) != YTP_OK)
        return false;
    while (from < to) {
        uint64_t len = to - from;
        if (len > STEP)
            len = STEP;
        if (len > y->map.range_size - from % y->map.range_size)
            len = y->map.range_size - from % y->map.range_size;
        if (ytpi_load_relaxed(&y->closed) || ytpi_map_poisoned(&y->map))
            return false;
        if (ytpi_plat_populate(ytpi_map_at(&y->map, from), (size_t)len, true) != 0)
            return false;
        from += len;
    }
    return true;
}

/* Holds the lock, and lets it go for the call. */
static void call_then(ytpi_supply_t *s)
{
    void (*then)(void *) = s->then;
    void *argument = s->then_argument;

    if (!then || s->stop)
        return;
    s->busy = true;
    ytpi_mutex_unlock(&s->lock);
    then(argument);
    ytpi_mutex_lock(&s->lock);
    s->busy = false;
    pthread_cond_broadcast(&s->idle);
}

static void *run(void *argument)
{
    ytp_yamal_t *y = argument;
    ytpi_supply_t *s = &y->supply;
    uint64_t machine_page = ytpi_plat_page_size();

    ytpi_mutex_lock(&s->lock);
    for (;;) {
        while (!s->stop && s->wanted <= s->ready)
            pthread_cond_wait(&s->wake, &s->lock.inner);
        if (s->stop)
            break;
        uint64_t from = s->ready, to = s->wanted;
        ytpi_mutex_unlock(&s->lock);

        /* Writers may have overtaken the last stretch: begin where they are now. */
        uint64_t tail = ytpi_le64(ytpi_load_relaxed(y->counter)) & ~(machine_page - 1);
        if (tail > from)
            from = tail;
        if (to < from)
            to = from;
        bool done = populate(y, from, to);

        ytpi_mutex_lock(&s->lock);
        s->ready = to;
        if (done)
            ytpi_store_relaxed(&s->trigger, to - s->ahead / 2);
        else
            ytpi_store_relaxed(&s->trigger, to + s->ahead); /* a full disk: do not try again at once */
        call_then(s);
    }
    ytpi_mutex_unlock(&s->lock);
    return NULL;
}

static bool start_thread(ytp_yamal_t *y)
{
    ytpi_supply_t *s = &y->supply;
    sigset_t all, before;
    bool started;

    /* Signals belong to the host's threads. SIGBUS is ours and must stay deliverable. */
    sigfillset(&all);
    sigdelset(&all, SIGBUS);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    started = pthread_create(&s->thread, NULL, run, y) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

void ytpi_supply_request(ytp_yamal_t *y, uint64_t end)
{
    ytpi_supply_t *s = &y->supply;

    /* Never make a writer wait for the helper. */
    if (pthread_mutex_trylock(&s->lock.inner) != 0)
        return;
    /* Ask again if no answer comes: the thread may have stayed behind in the parent of a fork while it was busy. */
    ytpi_store_relaxed(&s->trigger, s->stop || !s->ahead ? NEVER : end + s->ahead);
    if (!s->stop && s->ahead) {
        s->wanted = end + s->ahead;
        if (s->wanted > YTPI_MAX_FILE)
            s->wanted = YTPI_MAX_FILE;
        if (s->pid != ytpi_plat_pid()) {
            /* First use, or the thread stayed behind in the parent of a fork. */
            s->ready = 0;
            (void)pthread_cond_init(&s->wake, NULL);
            (void)pthread_cond_init(&s->idle, NULL);
            s->busy = false;
            s->pid = start_thread(y) ? ytpi_plat_pid() : 0;
        } else {
            pthread_cond_signal(&s->wake);
        }
    }
    ytpi_mutex_unlock(&s->lock);
}

void ytpi_supply_then(ytp_yamal_t *y, void (*then)(void *), void *argument)
{
    ytpi_supply_t *s = &y->supply;

    ytpi_mutex_lock(&s->lock);
    s->then = then;
    s->then_argument = argument;
    while (s->busy && s->pid == ytpi_plat_pid())
        pthread_cond_wait(&s->idle, &s->lock.inner);
    ytpi_mutex_unlock(&s->lock);
}

void ytpi_supply_stop(ytp_yamal_t *y)
{
    ytpi_supply_t *s = &y->supply;

    ytpi_mutex_lock(&s->lock);
    bool join = s->pid != 0 && s->pid == ytpi_plat_pid();
    s->stop = true;
    s->pid = 0;
    ytpi_store_relaxed(&s->trigger, NEVER);
    pthread_cond_signal(&s->wake);
    ytpi_mutex_unlock(&s->lock);
    if (join)
        (void)pthread_join(s->thread, NULL);
}

void ytpi_supply_destroy(ytp_yamal_t *y)
{
    (void)pthread_cond_destroy(&y->supply.wake);
    (void)pthread_cond_destroy(&y->supply.idle);
    ytpi_mutex_destroy(&y->supply.lock);
}
