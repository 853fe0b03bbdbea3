/* The load generator of the bench: adds jobs, or pops and finishes them, on many connections in one thread.
 *
 *   load http|beanstalk|resp PORT|/SOCKET NAME=NUMBER...
 *
 * adders, takers: connections that add, and that pop and finish. size: jobs in a request. jobs: how many are added, or
 * popped; without it, jobs are added for `for_ms`. first: the number of the first job. joined: takers wait, and finish in
 * the request of the next pop. at_ms or delay_ms: when the first job is due, since the epoch or from now; step_us: how
 * much later each next one is, from the beginning again after `wrap` jobs. retention: seconds.
 *
 * Prints a line of JSON, and then for each job received its number and the time, µs since the epoch, as two 64-bit
 * integers. Exit code 3: an answer was wrong; 1: anything else. Its message is on stderr. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "load.h"

struct plan plan = {.size = 1, .header = ""};

_Noreturn void fail(const char *what) {
    fprintf(stderr, "%s\n", what);
    exit(1);
}

_Noreturn void wrong(const char *what, const struct talk *talk) {
    fprintf(stderr, "%s: %.500s\n", what, talk->in);
    exit(3);
}

static void set(const char *argument) {
    static char header[256];
    if (!strncmp(argument, "header=", 7)) {
        if (snprintf(header, sizeof header, "%s\r\n", argument + 7) >= (int)sizeof header) fail("header is too long");
        plan.header = header;
        return;
    }
    const struct { const char *name; long *number; } known[] = {
        {"adders=", &plan.adders}, {"takers=", &plan.takers}, {"size=", &plan.size}, {"joined=", &plan.joined},
        {"jobs=", &plan.jobs}, {"first=", &plan.first}, {"for_ms=", &plan.for_ms}, {"at_ms=", &plan.at_ms},
        {"delay_ms=", &plan.delay_ms}, {"step_us=", &plan.step_us}, {"wrap=", &plan.wrap},
        {"retention=", &plan.retention},
    };
    for (size_t each = 0; each < sizeof known / sizeof *known; each++) {
        size_t length = strlen(known[each].name);
        if (strncmp(argument, known[each].name, length)) continue;
        *known[each].number = atol(argument + length);
        return;
    }
    fail("unknown argument");
}

static const struct dialect *dialect_of(const char *name) {
    const struct dialect *known[] = {&http, &beanstalk, &resp};
    for (size_t each = 0; each < sizeof known / sizeof *known; each++) {
        if (!strcmp(known[each]->name, name)) return known[each];
    }
    fail("unknown protocol");
}

int main(int count, char **arguments) {
    if (count < 3) fail("usage: load http|beanstalk|resp PORT|/SOCKET NAME=NUMBER...");
    for (int each = 3; each < count; each++) set(arguments[each]);
    if (plan.size < 1 || plan.size > MOST_JOBS) fail("size is 1 to 1,000");
    static struct done done;
    done.receipts = calloc((size_t)plan.jobs + 1, sizeof *done.receipts);
    if (!done.receipts) fail("no memory");
    run(dialect_of(arguments[1]), arguments[2], &done);
    printf("{\"added\":%lld,\"seconds\":%.6f,\"cpu_us\":%.0f}\n", (long long)done.added, done.seconds, done.cpu_us);
    fwrite(done.receipts, sizeof *done.receipts, (size_t)done.got, stdout);
    return 0;
}
