/* The SIGBUS handler; see fault.h. Everything the handler touches is static, atomic and lock-free. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "fault.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>

#include "mutex.h"
#include "plat.h"

ytpi_fault_slot_t ytpi_fault_slots[YTPI_FAULT_SLOTS];

static ytpi_a32 slots_used; /* highest slot ever taken, plus one */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static ytpi_mutex_t install_lock; /* created before any map, hence the innermost lock */
static struct sigaction previous;
static _Atomic uintptr_t passed_on; /* address of the last fault that the previous handler returned from */

static bool repair(uintptr_t address)
{
    size_t page = ytpi_plat_page_size();
    uint32_t used = ytpi_load_acquire(&slots_used);

    for (uint32_t i = 0; i < used; i++) {
        ytpi_fault_slot_t *slot = &ytpi_fault_slots[i];
        uintptr_t base = ytpi_load_acquire(&slot->base);
        if (base == 0 || address < base || address - base >= ytpi_load_relaxed(&slot->len))
            continue;
        ytpi_store_relaxed(&ytpi_fault_slots[ytpi_load_relaxed(&slot->owner)].poisoned, 1);
        /* A writable hole must take stores too, or a store in flight would fault forever. */
        return ytpi_plat_map_zeros((void *)(address & ~(uintptr_t)(page - 1)), page,
                                   ytpi_load_relaxed(&slot->writable) != 0);
    }
    return false;
}

static void pass_on(int number, siginfo_t *info, void *context)
{
    uintptr_t address = (uintptr_t)info->si_addr;

    if (previous.sa_flags & SA_SIGINFO) {
        if (ytpi_load_relaxed(&passed_on) != address) {
            previous.sa_sigaction(number, info, context);
            ytpi_store_relaxed(&passed_on, address);
            return;
        }
    } else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
        if (ytpi_load_relaxed(&passed_on) != address) {
            previous.sa_handler(number);
            ytpi_store_relaxed(&passed_on, address);
            return;
        }
    }
    /* Nobody wants it, or the host's handler returned without mending it: the default action, on retry. */
    struct sigaction fallback;
    memset(&fallback, 0, sizeof fallback);
    fallback.sa_handler = SIG_DFL;
    (void)sigaction(number, &fallback, NULL);
}

#ifndef SI_TKILL /* macOS: raise() looks like kill() */
#define SI_TKILL SI_USER
#endif

static void on_sigbus(int number, siginfo_t *info, void *context)
{
    /* A handler above ours (such as Python's faulthandler) that gives up re-raises the signal by itself. The
     * faulting instruction then runs again and comes back here with its true address. */
    if (info->si_code == SI_TKILL && info->si_pid == (pid_t)ytpi_plat_pid())
        return;
    if (info->si_code > 0 && repair((uintptr_t)info->si_addr))
        return;
    pass_on(number, info, context);
}

static void create_lock(void)
{
    (void)ytpi_mutex_init(&install_lock);
}

void ytpi_fault_install(void)
{
    struct sigaction ours, current;

    ytpi_mutex_lock(&install_lock);
    if (sigaction(SIGBUS, NULL, &current) == 0 &&
        !((current.sa_flags & SA_SIGINFO) && current.sa_sigaction == on_sigbus)) {
        memset(&ours, 0, sizeof ours);
        ours.sa_sigaction = on_sigbus;
        ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
        sigemptyset(&ours.sa_mask);
        previous = current;
        (void)sigaction(SIGBUS, &ours, NULL);
    }
    ytpi_mutex_unlock(&install_lock);
}

unsigned ytpi_fault_register(const void *base, size_t len, bool writable, unsigned owner)
{
    pthread_once(&once, create_lock);
    ytpi_fault_install();
    ytpi_mutex_lock(&install_lock);
    unsigned found = YTPI_NO_SLOT;
    for (unsigned i = 0; i < YTPI_FAULT_SLOTS && found == YTPI_NO_SLOT; i++)
        if (ytpi_load_relaxed(&ytpi_fault_slots[i].base) == 0)
            found = i;
    if (found != YTPI_NO_SLOT) {
        ytpi_fault_slot_t *slot = &ytpi_fault_slots[found];
        ytpi_store_relaxed(&slot->len, len);
        ytpi_store_relaxed(&slot->owner, owner == YTPI_NO_SLOT ? found : owner);
        ytpi_store_relaxed(&slot->poisoned, 0);
        ytpi_store_relaxed(&slot->writable, writable);
        /* FAULT: pairs with the acquire loads in repair(); publishes the other fields of the slot. */
        ytpi_store_release(&slot->base, (uintptr_t)base);
        if (found >= ytpi_load_relaxed(&slots_used))
            ytpi_store_release(&slots_used, found + 1);
    }
    ytpi_mutex_unlock(&install_lock);
    return found;
}

void ytpi_fault_unregister(unsigned slot)
{
    ytpi_mutex_lock(&install_lock);
    for (unsigned i = 0; i < YTPI_FAULT_SLOTS; i++)
        if (ytpi_load_relaxed(&ytpi_fault_slots[i].base) != 0 && ytpi_load_relaxed(&ytpi_fault_slots[i].owner) == slot)
            ytpi_store_release(&ytpi_fault_slots[i].base, 0);
    ytpi_mutex_unlock(&install_lock);
}
