/* beanstalkd's protocol. It numbers jobs itself: the id stands in the body, padded to 100 bytes. Several puts,
 * reserves or deletes are pipelined. Whoever waits takes one job at a time. */

#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "load.h"

#define BYTES 100
#define RESERVED "RESERVED "

/* Whole seconds: until a time rounded up, so that no job is early; of a delay, what is less than a second is none. */
static int64_t delay_s(int64_t number) {
    int64_t ms = when_ms(number);
    if (is_at()) ms += 999 - now_us() / 1000;
    return ms <= 0 ? 0 : ms / 1000;
}

static void put_put(int64_t number) {
    char padding[BYTES - ID_BYTES];
    memset(padding, ' ', sizeof padding);
    put_text("put 100 ");
    put_number(delay_s(number));
    put_text(" ");
    put_number(TTR_S);
    put_text(" 100\r\n");
    put_id(number);
    put(padding, sizeof padding);
    put_text("\r\n");
}

static void ask(struct talk *talk) {
    for (int each = 0; talk->step == ADD && each < talk->count; each++) put_put(talk->first + each);
    for (int each = 0; each < talk->ended; each++) {
        put_text("delete ");
        put_number(talk->jobs[each].handle);
        put_text("\r\n");
    }
    if (talk->step != POP && talk->step != NEXT) return;
    for (int each = 0; !plan.joined && each < plan.size; each++) put_text("reserve-with-timeout 0\r\n");
    if (plan.joined) put_text("reserve\r\n");
}

/* The answers that the open request will have. */
static int wanted(const struct talk *talk) {
    if (talk->step == ADD) return talk->count;
    int pops = talk->step == FINISH ? 0 : plan.joined ? 1 : (int)plan.size;
    return talk->ended + pops;
}

/* The end of the reserved job whose line begins here, or NULL while it is not whole. */
static const char *reserved(struct talk *talk, const char *at, const char *line, const char *end) {
    char *rest;
    int64_t handle = strtoll(at + sizeof RESERVED - 1, &rest, 10);
    if (strtoll(rest, NULL, 10) != BYTES) wrong("a job of another length", talk);
    if (end - line < BYTES + 2) return NULL;
    took(talk, id_number(line), handle);
    return line + BYTES + 2;
}

/* The end of the next answer, or NULL while it is not whole. */
static const char *read_one(struct talk *talk, const char *at, const char *end) {
    const char *line = memmem(at, (size_t)(end - at), "\r\n", 2);
    if (!line) return NULL;
    line += 2;
    if (talk->step == ADD || talk->answers < talk->ended) {
        if (!begins(at, end, talk->step == ADD ? "INSERTED " : "DELETED\r\n")) wrong("refused", talk);
        return line;
    }
    if (begins(at, end, "TIMED_OUT\r\n")) return line;
    if (!begins(at, end, RESERVED)) wrong("no job", talk);
    return reserved(talk, at, line, end);
}

static bool read(struct talk *talk) {
    if (!talk->answers && talk->step != ADD) talk->count = 0;
    const char *end = talk->in + talk->have;
    while (talk->answers < wanted(talk)) {
        const char *next = read_one(talk, talk->in + talk->seen, end);
        if (!next) return false;
        talk->seen = (size_t)(next - talk->in);
        talk->answers++;
    }
    if (talk->seen != talk->have) wrong("more answers than questions", talk);
    return true;
}

const struct dialect beanstalk = {"beanstalk", true, false, ask, read};
