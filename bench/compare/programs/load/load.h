/* The load generator of the bench: what its parts share. main.c says how it is called. */

#ifndef LOAD_H
#define LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MOST_JOBS 1000 /* in one request */
#define ID_BYTES 20    /* "job:" and 16 digits */
#define BODY_BYTES 98  /* 100 as JSON, with its quotes */
#define TTR_S 60
#define WAIT_S 30 /* of a pop that waits */

enum step { ADD, POP, RESERVE, FINISH, NEXT };

struct job {
    int64_t number; /* of its id; -1: not one of ours */
    int64_t handle; /* what a finish names besides the id: the lease, or the number of beanstalkd */
};

/* A connection and the request that is open on it. */
struct talk {
    int fd;
    bool takes; /* it pops and finishes; else it adds */
    enum step step;
    char *in;           /* what has arrived of the answer */
    size_t have, room;  /* bytes of it, and the most that fit */
    size_t seen;        /* bytes that the dialect is done with, and the answers in them */
    int answers;
    int count;          /* jobs that were asked for to be added, or that were popped */
    int ended;          /* jobs that the open request finishes */
    int64_t first;      /* number of the first job to add */
    struct job jobs[MOST_JOBS];
};

/* A protocol. `ask` appends the request of talk->step to the output; `read` tells whether its answer is whole, and
 * takes the popped jobs from it. */
struct dialect {
    const char *name;
    bool joins;    /* the end of some jobs and the next pop fit into one request: NEXT */
    bool reserves; /* a popped job has to be reserved by a request of its own: RESERVE */
    void (*ask)(struct talk *talk);
    bool (*read)(struct talk *talk);
};

extern const struct dialect http, beanstalk, resp;

/* What is to be done; set by the arguments, see main.c. */
struct plan {
    long adders, takers, size, joined, jobs, first, for_ms, at_ms, delay_ms, step_us, wrap, retention;
    const char *header; /* a line of each request over HTTP, with its end; "" for none */
};

extern struct plan plan;

/* What was done. */
struct receipt {
    int64_t number, at_us; /* a job that was received, and when, µs since the epoch */
};

struct done {
    int64_t added, got;
    double seconds, cpu_us;
    struct receipt *receipts;
};

void run(const struct dialect *dialect, const char *address, struct done *done);

/* Whether the job falls due at a time (plan.at_ms) or after a delay, and that time or delay in milliseconds. */
bool is_at(void);
int64_t when_ms(int64_t number);

int64_t now_us(void);            /* since the epoch */
_Noreturn void wrong(const char *what, const struct talk *talk); /* an answer is not as it should be */
_Noreturn void fail(const char *what);

/* The bytes of the next request. All connections use the same ones, as a request is sent at once. */
struct output {
    char *bytes;
    size_t length, room;
};

extern struct output output;

void put(const char *bytes, size_t length);
void put_text(const char *text);
void put_number(int64_t number);
void put_id(int64_t number);
void put_body(void);
void put_front(const char *head, size_t length); /* moves what is there behind a head; only http needs it */

int64_t id_number(const char *id); /* the number of an id of ID_BYTES, or -1 */
void took(struct talk *talk, int64_t number, int64_t handle);
bool begins(const char *at, const char *end, const char *text);
int count_of(const char *at, const char *end, const char *text);

#endif
