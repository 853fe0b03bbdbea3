/* Our own protocol: commands as JSON on POST /command. A lone job is an object, several are an array. */

#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "load.h"

static const char HEAD[] = "POST /command HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                           "%sContent-Length: %zu\r\n\r\n";
#define POP_OF "{\"command\":\"pop\",\"topic\":\"bench\""

/* Seconds with up to three decimals. */
static void put_seconds(int64_t ms) {
    put_number(ms / 1000);
    if (!(ms % 1000)) return;
    char part[4] = {'.', (char)('0' + ms / 100 % 10), (char)('0' + ms / 10 % 10), (char)('0' + ms % 10)};
    put(part, sizeof part);
}

static void put_add(int64_t number) {
    put_text("{\"command\":\"add\",\"topic\":\"bench\",\"id\":\"");
    put_id(number);
    put_text(is_at() ? "\",\"at\":" : "\",\"delay\":");
    put_seconds(when_ms(number));
    put_text(",\"retention\":");
    put_number(plan.retention);
    put_text(",\"body\":\"");
    put_body();
    put_text("\"}");
}

static void put_finish(const struct job *job) {
    put_text("{\"command\":\"finish\",\"id\":\"");
    put_id(job->number);
    put_text("\",\"lease\":");
    put_number(job->handle);
    put_text("}");
}

static void put_pop(void) {
    put_text(POP_OF);
    if (plan.size > 1) {
        put_text(",\"count\":");
        put_number(plan.size);
    }
    if (plan.joined) {
        put_text(",\"wait\":");
        put_number(WAIT_S);
    }
    put_text("}");
}

static void put_commands(struct talk *talk) {
    for (int each = 0; talk->step == ADD && each < talk->count; each++) {
        if (each) put_text(",");
        put_add(talk->first + each);
    }
    for (int each = 0; each < talk->ended; each++) {
        if (each) put_text(",");
        put_finish(&talk->jobs[each]);
    }
    if (talk->step == NEXT) put_text(",");
    if (talk->step == NEXT || talk->step == POP) put_pop();
}

static void ask(struct talk *talk) {
    bool array = plan.joined || (plan.size > 1 && talk->step != POP);
    if (array) put_text("[");
    put_commands(talk);
    if (array) put_text("]");
    char head[sizeof HEAD + 24 + 256];
    put_front(head, (size_t)snprintf(head, sizeof head, HEAD, plan.header, output.length));
}

static void read_jobs(struct talk *talk, const char *at, const char *end) {
    talk->count = 0;
    while ((at = memmem(at, (size_t)(end - at), "\",\"value\":", 10))) {
        const char *lease = memmem(at, (size_t)(end - at), "\"lease\":", 8);
        if (!lease || memcmp(at - ID_BYTES - 6, "\"id\":\"", 6)) wrong("a job without id or lease", talk);
        took(talk, id_number(at - ID_BYTES), strtoll(lease + 8, NULL, 10));
        at = lease;
    }
}

static void read_body(struct talk *talk, const char *at, const char *end) {
    if (memmem(at, (size_t)(end - at), "\"success\":false", 15)) wrong("refused", talk);
    if (talk->step == ADD && count_of(at, end, "\"result\":\"created\"") != talk->count) wrong("not all were added", talk);
    if (talk->ended && count_of(at, end, "\"state\":\"finished\"") != talk->ended) wrong("not all were finished", talk);
    if (talk->step == POP || talk->step == NEXT) read_jobs(talk, at, end);
}

static bool read(struct talk *talk) {
    if (!talk->seen) { /* becomes the length of the whole answer */
        char *end = memmem(talk->in, talk->have, "\r\n\r\n", 4);
        if (!end) return false;
        if (!begins(talk->in, end, "HTTP/1.1 200")) wrong("not a 200", talk);
        *end = 0; /* ends the search of the next line */
        char *length = strcasestr(talk->in, "\r\ncontent-length:");
        *end = '\r';
        if (!length) wrong("no Content-Length", talk);
        talk->seen = (size_t)(end + 4 - talk->in) + strtoul(length + 17, NULL, 10);
    }
    if (talk->have < talk->seen) return false;
    if (talk->have > talk->seen) wrong("more than one answer", talk);
    char *body = memmem(talk->in, talk->have, "\r\n\r\n", 4);
    read_body(talk, body + 4, talk->in + talk->have);
    return true;
}

const struct dialect http = {"http", true, false, ask, read};
