/* The fewest commands of Redis that could do the work of a delay queue: add = SET + ZADD; pop = LPOP or BLMPOP, then
 * MGET + ZADD; finish = ZREM + DEL. */

#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "load.h"

static void put_head(int parts) {
    put_text("*");
    put_number(parts);
    put_text("\r\n");
}

static void put_part(const char *text) {
    put_text("$");
    put_number((int64_t)strlen(text));
    put_text("\r\n");
    put_text(text);
    put_text("\r\n");
}

static void put_ms(int64_t ms) {
    put_text("$13\r\n");
    put_number(ms);
    put_text("\r\n");
}

static void put_name(int64_t number) {
    put_text("$20\r\n");
    put_id(number);
    put_text("\r\n");
}

static void put_key(int64_t number) {
    put_text("$22\r\nj:");
    put_id(number);
    put_text("\r\n");
}

static void put_add(int64_t number) {
    put_text("*3\r\n$3\r\nSET\r\n");
    put_key(number);
    put_text("$100\r\n\"");
    put_body();
    put_text("\"\r\n*4\r\n$4\r\nZADD\r\n$1\r\nb\r\n");
    put_ms(is_at() ? when_ms(number) : now_us() / 1000 + 1 + when_ms(number));
    put_name(number);
}

static void put_pop(void) {
    put_head(plan.joined ? 7 : 3);
    put_part(plan.joined ? "BLMPOP" : "LPOP");
    put_text(plan.joined ? "$2\r\n30\r\n$1\r\n1\r\n$1\r\nr\r\n$4\r\nLEFT\r\n$5\r\nCOUNT\r\n" : "$1\r\nr\r\n");
    char size[24], *at = size + sizeof size - 1;
    *at = 0;
    for (long rest = plan.size; rest; rest /= 10) *--at = (char)('0' + rest % 10);
    put_part(at);
}

static void put_reserve(const struct talk *talk) {
    int64_t until_ms = now_us() / 1000 + TTR_S * 1000;
    put_head(1 + talk->count);
    put_part("MGET");
    for (int each = 0; each < talk->count; each++) put_key(talk->jobs[each].number);
    put_head(2 + 2 * talk->count);
    put_text("$4\r\nZADD\r\n$1\r\nb\r\n");
    for (int each = 0; each < talk->count; each++) {
        put_ms(until_ms);
        put_name(talk->jobs[each].number);
    }
}

static void put_finish(const struct talk *talk) {
    put_head(2 + talk->ended);
    put_text("$4\r\nZREM\r\n$1\r\nb\r\n");
    for (int each = 0; each < talk->ended; each++) put_name(talk->jobs[each].number);
    put_head(1 + talk->ended);
    put_part("DEL");
    for (int each = 0; each < talk->ended; each++) put_key(talk->jobs[each].number);
}

static void ask(struct talk *talk) {
    if (talk->step == POP) put_pop();
    if (talk->step == RESERVE) put_reserve(talk);
    if (talk->step == FINISH) put_finish(talk);
    for (int each = 0; talk->step == ADD && each < talk->count; each++) put_add(talk->first + each);
}

/* The end of the reply that begins here, or NULL while it is not whole. */
static const char *skip(const char *at, const char *end) {
    const char *line = at < end ? memmem(at, (size_t)(end - at), "\r\n", 2) : NULL;
    if (!line) return NULL;
    long number = *at == '*' || *at == '$' ? strtol(at + 1, NULL, 10) : -1;
    line += 2;
    if (*at == '$' && number >= 0) return end - line < number + 2 ? NULL : line + number + 2;
    for (long each = 0; *at == '*' && line && each < number; each++) line = skip(line, end);
    return line;
}

static const char *expect(struct talk *talk, const char *at, const char *reply) {
    if (!begins(at, talk->in + talk->have, reply)) wrong("another reply", talk);
    return at + strlen(reply);
}

static const char *expect_number(struct talk *talk, const char *at, long number) {
    if (*at != ':' || strtol(at + 1, NULL, 10) != number) wrong("another number", talk);
    return skip(at, talk->in + talk->have);
}

static void read_popped(struct talk *talk) {
    const char *at = talk->in;
    talk->count = 0;
    if (*at != '*') wrong("no jobs", talk);
    if (begins(at, at + talk->have, "*-1")) return;
    if (plan.joined) at = expect(talk, at, "*2\r\n$1\r\nr\r\n");
    const char *end = talk->in + talk->have;
    at = strstr(at, "\r\n") + 2;
    while (at < end) {
        at = expect(talk, at, "$20\r\n");
        took(talk, id_number(at), 0);
        at += ID_BYTES + 2;
    }
}

static void read_reserved(struct talk *talk) {
    if (*talk->in != '*' || memmem(talk->in, talk->have, "$-1", 3)) wrong("a job has no record", talk);
    expect_number(talk, skip(talk->in, talk->in + talk->have), talk->count);
}

static void read_added(struct talk *talk) {
    const char *at = talk->in;
    for (int each = 0; each < talk->count; each++) at = expect(talk, at, "+OK\r\n:1\r\n");
}

static bool read(struct talk *talk) {
    int replies = talk->step == ADD ? 2 * talk->count : talk->step == POP ? 1 : 2;
    const char *end = talk->in + talk->have, *at = talk->in + talk->seen;
    for (; talk->answers < replies; talk->answers++) {
        if (!(at = skip(at, end))) return false;
        talk->seen = (size_t)(at - talk->in);
    }
    if (at != end) wrong("more replies than commands", talk);
    if (talk->step == ADD) read_added(talk);
    if (talk->step == POP) read_popped(talk);
    if (talk->step == RESERVE) read_reserved(talk);
    if (talk->step == FINISH) expect_number(talk, expect_number(talk, talk->in, talk->ended), talk->ended);
    return true;
}

const struct dialect resp = {"resp", false, true, ask, read};
