/* What the machine and CPython allow: the smallest call, the smallest tuple, a cache line that travels between
 * two processes, appending to and walking a linked log in mapped memory. A Python extension without safety. */
#define PY_SSIZE_T_CLEAN
#define _GNU_SOURCE
#include <Python.h>

#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#define DATA 64u
#define HEAD 48u /* node of 24 bytes, then peer, channel and time */
#define STEP (HEAD + DATA)

typedef struct {
    _Atomic uint64_t size, next, prev, magic;
} header_t;

static uint64_t read_clock(clockid_t clock)
{
    struct timespec ts;
    clock_gettime(clock, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static uint64_t now(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

/* For loops in one thread: what others on the machine do does not count. */
static uint64_t processor_time(void)
{
    return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

static PyObject *two_arguments(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    (void)self, (void)args, (void)count;
    Py_RETURN_NONE;
}

/* pingpong(buffer, ping, rounds[, times]): bounces a number in the first word of a shared buffer. */
static PyObject *pingpong(PyObject *self, PyObject *args)
{
    Py_buffer line, times = {0};
    int ping;
    unsigned long long rounds;

    (void)self;
    if (!PyArg_ParseTuple(args, "w*pK|w*", &line, &ping, &rounds, &times))
        return NULL;
    _Atomic uint64_t *there = line.buf, *back = (_Atomic uint64_t *)((char *)line.buf + 128);
    Py_BEGIN_ALLOW_THREADS
    for (uint64_t i = 1; i <= rounds; i++) {
        if (ping) {
            uint64_t start = now();
            atomic_store_explicit(there, i, memory_order_release);
            while (atomic_load_explicit(back, memory_order_acquire) != i)
                ;
            if (times.buf)
                ((uint64_t *)times.buf)[i - 1] = now() - start;
        } else {
            while (atomic_load_explicit(there, memory_order_acquire) != i)
                ;
            atomic_store_explicit(back, i, memory_order_release);
        }
    }
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&line);
    if (times.buf)
        PyBuffer_Release(&times);
    Py_RETURN_NONE;
}

/* append(buffer, count) -> ns: reserve, copy, publish records of 64 bytes. */
static PyObject *append(PyObject *self, PyObject *args)
{
    Py_buffer log;
    unsigned long long count;
    char data[DATA];

    (void)self;
    if (!PyArg_ParseTuple(args, "w*K", &log, &count))
        return NULL;
    char *base = log.buf;
    header_t *head = log.buf;
    memset(data, 'x', sizeof data);
    memset(base, 0, sizeof *head);
    atomic_store(&head->size, sizeof *head);
    if (count * STEP + sizeof *head > (uint64_t)log.len)
        count = ((uint64_t)log.len - sizeof *head) / STEP;
    uint64_t start = processor_time(), tail = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t at = atomic_load_explicit(&head->size, memory_order_relaxed);
        while (!atomic_compare_exchange_weak(&head->size, &at, at + STEP))
            ;
        uint64_t *node = (uint64_t *)(base + at);
        node[0] = STEP - 24, node[1] = 0, node[2] = tail, node[3] = 256, node[4] = 256, node[5] = i;
        memcpy(base + at + HEAD, data, DATA);
        uint64_t nothing = 0;
        atomic_compare_exchange_strong((_Atomic uint64_t *)(base + tail + 8), &nothing, at);
        atomic_store_explicit(&head->prev, at, memory_order_release);
        tail = at;
    }
    uint64_t spent = processor_time() - start;
    PyBuffer_Release(&log);
    return PyLong_FromUnsignedLongLong(spent);
}

/* walk(buffer) -> (ns, records, sum): follows the links of what append() wrote and touches each payload. */
static PyObject *walk(PyObject *self, PyObject *args)
{
    Py_buffer log;

    (void)self;
    if (!PyArg_ParseTuple(args, "y*", &log))
        return NULL;
    const char *base = log.buf;
    uint64_t start = processor_time(), records = 0, sum = 0, at = 0;
    while ((at = atomic_load_explicit((const _Atomic uint64_t *)(base + at + 8), memory_order_acquire)) != 0) {
        uint64_t words[DATA / 8];
        memcpy(words, base + at + HEAD, DATA);
        sum += words[0] + words[7] + ((const uint64_t *)(base + at))[5];
        records++;
    }
    uint64_t spent = processor_time() - start;
    PyBuffer_Release(&log);
    return Py_BuildValue("KKK", (unsigned long long)spent, (unsigned long long)records, (unsigned long long)sum);
}

typedef struct {
    PyObject_HEAD
    Py_ssize_t left;
} tuples_t;

static PyObject *tuples_next(tuples_t *self)
{
    static const char data[DATA];
    if (self->left-- <= 0)
        return NULL;
    PyObject *tuple = PyTuple_New(3);
    PyTuple_SET_ITEM(tuple, 0, PyLong_FromUnsignedLongLong(1700000000000000000u + (unsigned long long)self->left));
    Py_INCREF(Py_None);
    PyTuple_SET_ITEM(tuple, 1, Py_None);
    PyTuple_SET_ITEM(tuple, 2, PyBytes_FromStringAndSize(data, DATA));
    return tuple;
}

static PyTypeObject tuples_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "bench_floors.tuples",
    .tp_basicsize = sizeof(tuples_t),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_iter = PyObject_SelfIter,
    .tp_iternext = (iternextfunc)tuples_next,
};

/* tuples(n): an iterator of n tuples (int, None, 64 new bytes). */
static PyObject *tuples(PyObject *self, PyObject *count)
{
    (void)self;
    tuples_t *made = PyObject_New(tuples_t, &tuples_type);
    if (made)
        made->left = PyLong_AsSsize_t(count);
    return (PyObject *)made;
}

static PyMethodDef methods[] = {
    {"two_arguments", (PyCFunction)(void (*)(void))two_arguments, METH_FASTCALL, NULL},
    {"pingpong", pingpong, METH_VARARGS, NULL},
    {"append", append, METH_VARARGS, NULL},
    {"walk", walk, METH_VARARGS, NULL},
    {"tuples", tuples, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "bench_floors", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_bench_floors(void)
{
    if (PyType_Ready(&tuples_type) < 0)
        return NULL;
    return PyModule_Create(&module);
}
