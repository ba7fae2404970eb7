/*
 * A client of libtirpc: calls procedure NULL over TCP again and again, one call at a time, and prints how long that took.
 * Arguments: the port of the loopback address, program, version, seconds. A fifth of them is spent before anything counts.
 */
#include <netinet/in.h>
#include <rpc/rpc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

/* Samples at most: the first so many round trips stand for all. */
#define SAMPLES (1 << 22)

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000ull + time.tv_nsec;
}

static int compare(const void *one, const void *other)
{
	uint32_t a = *(const uint32_t *)one, b = *(const uint32_t *)other;

	return (a > b) - (a < b);
}

static void call(CLIENT *client)
{
	struct timeval patience = { .tv_sec = 10 };
	enum clnt_stat status =
		clnt_call(client, NULLPROC, (xdrproc_t)xdr_void, NULL, (xdrproc_t)xdr_void, NULL, patience);

	if (status != RPC_SUCCESS) {
		fprintf(stderr, "NULL: %s\n", clnt_sperrno(status));
		exit(1);
	}
}

int main(int count, char **arguments)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct netbuf to = { .maxlen = sizeof at, .len = sizeof at, .buf = &at };
	uint32_t *samples = malloc(SAMPLES * sizeof *samples);

	if (count != 5 || !samples) {
		fprintf(stderr, "usage: %s PORT PROGRAM VERSION SECONDS\n", arguments[0]);
		return 2;
	}
	at.sin_port = htons(atoi(arguments[1]));
	int connection = socket(AF_INET, SOCK_STREAM, 0);
	if (connection < 0 || connect(connection, (struct sockaddr *)&at, sizeof at)) {
		perror("connect");
		return 1;
	}
	CLIENT *client = clnt_vc_create(connection, &to, strtoul(arguments[2], NULL, 0), strtoul(arguments[3], NULL, 0), 0, 0);
	if (!client) {
		clnt_pcreateerror("clnt_vc_create");
		return 1;
	}
	uint64_t span = atof(arguments[4]) * 1e9;
	for (uint64_t until = now() + span / 5; now() < until;)
		call(client);

	uint64_t calls = 0, begin = now(), last = begin;
	while (last - begin < span) {
		call(client);
		uint64_t time = now();
		if (calls < SAMPLES)
			samples[calls] = time - last;
		calls++;
		last = time;
	}
	uint64_t kept = calls < SAMPLES ? calls : SAMPLES;
	qsort(samples, kept, sizeof *samples, compare);
	printf("calls=%llu elapsed_ns=%llu p50_ns=%u p99_ns=%u\n", (unsigned long long)calls,
	       (unsigned long long)(last - begin), samples[kept / 2], samples[kept * 99 / 100]);
	clnt_destroy(client);
	return 0;
}
