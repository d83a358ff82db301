/* Page supply: a helper thread keeps a bounded stretch ahead of the tail allocated and populated, so that writers
 * find warm pages. It starts with the first writer that gets going, sleeps when nobody writes, and costs a writer
 * one comparison per reservation. */
#ifndef YTPI_SUPPLY_H
#define YTPI_SUPPLY_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "atomic.h"
#include "error.h"
#include "mutex.h"

typedef struct ytpi_supply {
    ytpi_a64 trigger; /* a reservation that ends above this asks for more; UINT64_MAX = not now */
    uint64_t ahead;   /* bytes to keep ready; 0 = off */
    ytpi_mutex_t lock;
    pthread_cond_t wake;
    pthread_t thread;
    long pid; /* of the process that runs the thread; 0 = none */
    uint64_t wanted;
    uint64_t ready; /* populated up to here */
    bool stop;
    void (*then)(void *); /* called by the thread after its work, without locks */
    void *then_argument;
    bool busy; /* calling it */
    pthread_cond_t idle;
} ytpi_supply_t;

struct ytp_yamal;

bool ytpi_supply_init(struct ytp_yamal *y, uint64_t ahead);
/* Work for the thread to do each time after its own; NULL = none any more, returned from when it is not running. */
void ytpi_supply_then(struct ytp_yamal *y, void (*then)(void *), void *argument);
void ytpi_supply_stop(struct ytp_yamal *y);
void ytpi_supply_destroy(struct ytp_yamal *y);
void ytpi_supply_request(struct ytp_yamal *y, uint64_t end) YTPI_COLD;

/* Expanded where struct ytp_yamal is known. */
#define ytpi_supply_notice(y, end)                                                                                     \
    do {                                                                                                               \
        if (ytpi_unlikely((end) > ytpi_load_relaxed(&(y)->supply.trigger)))                                            \
            ytpi_supply_request((y), (end));                                                                           \
    } while (0)

#endif
