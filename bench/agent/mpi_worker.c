/* SPDX-License-Identifier: Apache-2.0
 * The MPI side of bench.agent.all_reduce, one process per host: all-reduces arrays on request, in place.
 *
 * Rank 0 takes requests on standard input, {"elements": N, "count": N}, and answers each by a line: a list with
 * {"seconds": [of each all-reduce], "cpu": seconds} of every rank. Ends with its input. */
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

enum { BETWEEN_REQUESTS = 20000 }; /* us that a rank sleeps before it looks again for the next one */

typedef struct {
    long elements, count;
} request;

static void fail(const char *what) {
    fprintf(stderr, "mpi_worker: %s\n", what);
    MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

/* Ranks in turn get a CPU each. The kernel moves who wakes up, but of these none ever sleeps: several would stay on one
 * CPU while another one is a single rank's. */
static void stay_on_a_cpu(void) {
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    cpu_set_t allowed, own;
    if (!rank || sched_getaffinity(0, sizeof allowed, &allowed)) {
        fail("no rank, or no CPUs");
    }
    int left = atoi(rank) % CPU_COUNT(&allowed), cpu = 0;
    while (!CPU_ISSET(cpu, &allowed) || left--) {
        cpu++;
    }
    CPU_ZERO(&own);
    CPU_SET(cpu, &own);
    sched_setaffinity(0, sizeof own, &own);
}

/* The next request, at every rank; a count of 0 is the end. MPI's own waits poll without a pause, which would take the
 * CPUs from the sides that are measured meanwhile. */
static request next(int rank) {
    long words[2] = {0, 0};
    char line[256];
    if (rank == 0 && fgets(line, sizeof line, stdin) &&
        (sscanf(line, "{\"elements\": %ld, \"count\": %ld}", &words[0], &words[1]) != 2 || words[0] < 1 ||
         words[1] < 1)) {
        fail("a request is no {\"elements\": N, \"count\": N}");
    }
    MPI_Request sent;
    int done = 0;
    MPI_Ibcast(words, 2, MPI_LONG, 0, MPI_COMM_WORLD, &sent);
    while (MPI_Test(&sent, &done, MPI_STATUS_IGNORE), !done) {
        usleep(BETWEEN_REQUESTS);
    }
    return (request){words[0], words[1]};
}

static double cpu_seconds(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

static void all_reduce(float *array, long elements) {
    MPI_Allreduce(MPI_IN_PLACE, array, (int)elements, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void fill(float *array, long elements, float value) {
    for (long i = 0; i < elements; i++) {
        array[i] = value;
    }
}

/* Seconds of each all-reduce, and CPU seconds of all of them at the end of `found`. */
static void measure(request asked, int rank, int size, double *found) {
    float *array = malloc((size_t)asked.elements * sizeof *array);
    if (!array) {
        fail("no memory");
    }
    fill(array, asked.elements, (float)(rank + 1));
    all_reduce(array, asked.elements);
    for (long i = 0; i < asked.elements; i++) {
        if (array[i] != (float)(size * (size + 1) / 2)) {
            fail("the sum is wrong");
        }
    }
    fill(array, asked.elements, 0); /* or it would grow without end */
    all_reduce(array, asked.elements);
    double cpu = cpu_seconds();
    for (long i = 0; i < asked.count; i++) {
        double begin = MPI_Wtime();
        all_reduce(array, asked.elements);
        found[i] = MPI_Wtime() - begin;
    }
    found[asked.count] = cpu_seconds() - cpu;
    free(array);
}

static void answer(const double *found, int size, long count) {
    for (int rank = 0; rank < size; rank++, found += count + 1) {
        printf("%s{\"seconds\": [", rank ? ", " : "[");
        for (long i = 0; i < count; i++) {
            printf("%s%.9f", i ? ", " : "", found[i]);
        }
        printf("], \"cpu\": %.6f}", found[count]);
    }
    puts("]");
    fflush(stdout);
}

int main(int argc, char **argv) {
    int rank, size;
    stay_on_a_cpu();
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank == 0) {
        puts("ready");
        fflush(stdout);
    }
    for (request asked; (asked = next(rank)).count;) {
        int each = (int)asked.count + 1;
        double *own = malloc((size_t)each * sizeof *own);
        double *all = rank ? NULL : malloc((size_t)each * (size_t)size * sizeof *all);
        if (!own || (!rank && !all)) {
            fail("no memory");
        }
        measure(asked, rank, size, own);
        MPI_Gather(own, each, MPI_DOUBLE, all, each, MPI_DOUBLE, 0, MPI_COMM_WORLD);
        if (rank == 0) {
            answer(all, size, asked.count);
        }
        free(own);
        free(all);
    }
    MPI_Finalize();
    return 0;
}
