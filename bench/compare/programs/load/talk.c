/* The connections: one request is open on each, on epoll, in one thread. */

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "load.h"

#define EVENTS 256
#define PATIENCE_MS 60000
#define LINGER_US 200000
#define PIECE (1 << 16)

static const struct dialect *dialect;
static struct done *done;
static struct talk *talks;
static double end_s;     /* when timed adders stop */
static long adding;      /* adders that are not done */
static long in_hand;     /* requests open that reserve or finish jobs and answer at once */
static int64_t next_job; /* to be added */

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

int64_t now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static double cpu_us(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return 1e6 * (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

bool is_at(void) { return plan.at_ms > 0; }

int64_t when_ms(int64_t number) {
    int64_t place = number - plan.first;
    if (plan.wrap) place %= plan.wrap;
    return (is_at() ? plan.at_ms : plan.delay_ms) + place * plan.step_us / 1000;
}

static int connected(int family, const struct sockaddr *address, socklen_t length) {
    int fd = socket(family, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, address, length)) fail(strerror(errno));
    return fd;
}

/* A connection to a Unix socket, or to a port of this machine. */
static int connect_to(const char *address) {
    if (*address == '/') {
        struct sockaddr_un path = {.sun_family = AF_UNIX};
        strncpy(path.sun_path, address, sizeof path.sun_path - 1);
        return connected(AF_UNIX, (struct sockaddr *)&path, sizeof path);
    }
    struct sockaddr_in port = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(address))};
    port.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = connected(AF_INET, (struct sockaddr *)&port, sizeof port), yes = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    return fd;
}

static void send_all(int fd) {
    size_t sent = 0;
    while (sent < output.length) {
        ssize_t part = send(fd, output.bytes + sent, output.length - sent, MSG_NOSIGNAL);
        if (part <= 0) fail(strerror(errno));
        sent += (size_t)part;
    }
    output.length = 0;
}

static void begin(struct talk *talk, enum step step) {
    talk->step = step;
    talk->ended = step == FINISH || step == NEXT ? talk->count : 0;
    talk->have = talk->seen = 0;
    talk->answers = 0;
    in_hand += step == FINISH || step == RESERVE;
    dialect->ask(talk);
    send_all(talk->fd);
}

static void add_next(struct talk *talk) {
    int64_t left = plan.jobs ? plan.first + plan.jobs - next_job : now_s() < end_s ? plan.size : 0;
    talk->count = (int)(left < plan.size ? left : plan.size);
    if (talk->count <= 0) {
        adding--;
        return;
    }
    talk->first = next_job;
    next_job += talk->count;
    begin(talk, ADD);
}

static bool all_here(void) { return done->got >= plan.jobs; }

static void receive(struct talk *talk, int64_t at_us) {
    for (int each = 0; each < talk->count; each++) {
        if (done->got == plan.jobs) wrong("more jobs than there are", talk);
        done->receipts[done->got++] = (struct receipt){talk->jobs[each].number, at_us};
    }
}

/* The open request is answered: what this taker does next. It stops where no more jobs can come. */
static void take_next(struct talk *talk, int64_t at_us) {
    bool popped = talk->step == POP || talk->step == NEXT;
    if (popped) receive(talk, at_us);
    if (popped && talk->count && dialect->reserves) {
        begin(talk, RESERVE);
    } else if ((popped && talk->count) || talk->step == RESERVE) {
        begin(talk, plan.joined && dialect->joins && !all_here() ? NEXT : FINISH);
    } else if (!all_here()) {
        begin(talk, POP);
    }
}

static void serve(struct talk *talk) {
    if (talk->room - talk->have < PIECE) {
        talk->room = 2 * (talk->room + PIECE);
        talk->in = realloc(talk->in, talk->room);
        if (!talk->in) fail("no memory");
    }
    ssize_t part = recv(talk->fd, talk->in + talk->have, talk->room - talk->have - 1, 0);
    if (part <= 0) fail("the other side hung up");
    talk->have += (size_t)part;
    talk->in[talk->have] = 0;
    int64_t at_us = now_us();
    if (!dialect->read(talk)) return;
    in_hand -= talk->step == FINISH || talk->step == RESERVE;
    if (talk->takes) {
        take_next(talk, at_us);
    } else {
        done->added += talk->count;
        add_next(talk);
    }
}

/* Whether nothing is to be waited for: pops that still wait get no job. */
static bool is_over(void) { return !adding && (!plan.takers || (all_here() && !in_hand)); }

static void open_all(const char *address, int poll) {
    for (long each = 0; each < plan.adders + plan.takers; each++) {
        struct talk *talk = &talks[each];
        talk->fd = connect_to(address);
        talk->takes = each >= plan.adders;
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = talk};
        if (epoll_ctl(poll, EPOLL_CTL_ADD, talk->fd, &event)) fail(strerror(errno));
    }
}

static void serve_all(int poll) {
    struct epoll_event events[EVENTS];
    while (!is_over()) {
        int number = epoll_wait(poll, events, EVENTS, PATIENCE_MS);
        if (number <= 0) fail("no answer for 60 s");
        for (int each = 0; each < number; each++) serve(events[each].data.ptr);
    }
}

void run(const struct dialect *spoken, const char *address, struct done *result) {
    dialect = spoken;
    done = result;
    long number = plan.adders + plan.takers;
    talks = calloc((size_t)number, sizeof *talks);
    if (!talks) fail("no memory");
    int poll = epoll_create1(0);
    open_all(address, poll);
    double begun_s = now_s(), begun_us = cpu_us();
    end_s = begun_s + (double)plan.for_ms / 1000;
    next_job = plan.first;
    adding = plan.adders;
    for (long each = 0; each < number; each++) {
        if (talks[each].takes) begin(&talks[each], POP);
        else add_next(&talks[each]);
    }
    serve_all(poll);
    done->seconds = now_s() - begun_s;
    done->cpu_us = cpu_us() - begun_us;
    if (plan.takers && plan.joined) usleep(LINGER_US); /* what waits has still to finish what came with it */
}
