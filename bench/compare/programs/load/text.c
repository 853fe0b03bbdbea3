/* Writing requests and reading answers, as cheaply as possible: no printf on the way of a job. */

#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "load.h"

struct output output;

static char *more(size_t length) {
    if (output.length + length > output.room) {
        output.room = 2 * (output.length + length);
        output.bytes = realloc(output.bytes, output.room);
        if (!output.bytes) fail("no memory");
    }
    char *at = output.bytes + output.length;
    output.length += length;
    return at;
}

void put(const char *bytes, size_t length) { memcpy(more(length), bytes, length); }

void put_text(const char *text) { put(text, strlen(text)); }

void put_number(int64_t number) {
    char digits[24], *at = digits + sizeof digits;
    do *--at = (char)('0' + number % 10);
    while (number /= 10);
    put(at, (size_t)(digits + sizeof digits - at));
}

void put_id(int64_t number) {
    char *at = more(ID_BYTES);
    memcpy(at, "job:", 4);
    for (int place = ID_BYTES - 1; place >= 4; place--, number /= 10) at[place] = (char)('0' + number % 10);
}

void put_body(void) { memset(more(BODY_BYTES), 'x', BODY_BYTES); }

void put_front(const char *head, size_t length) {
    size_t have = output.length;
    more(length);
    memmove(output.bytes + length, output.bytes, have);
    memcpy(output.bytes, head, length);
}

int64_t id_number(const char *id) {
    int64_t number = 0;
    if (memcmp(id, "job:", 4)) return -1;
    for (int place = 4; place < ID_BYTES; place++) {
        if (id[place] < '0' || id[place] > '9') return -1;
        number = 10 * number + id[place] - '0';
    }
    return number;
}

void took(struct talk *talk, int64_t number, int64_t handle) {
    if (talk->count == MOST_JOBS) wrong("more jobs than were asked for", talk);
    talk->jobs[talk->count++] = (struct job){number, handle};
}

bool begins(const char *at, const char *end, const char *text) {
    size_t length = strlen(text);
    return (size_t)(end - at) >= length && !memcmp(at, text, length);
}

int count_of(const char *at, const char *end, const char *text) {
    size_t length = strlen(text);
    int found = 0;
    while ((at = memmem(at, (size_t)(end - at), text, length))) {
        found++;
        at += length;
    }
    return found;
}
