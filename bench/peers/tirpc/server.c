/*
 * A server of libtirpc that does nothing: procedure NULL of the program and version that are its arguments, over TCP.
 * It takes a free port of the loopback address, prints it, and runs until a signal ends it. No port mapper is asked.
 */
#include <netinet/in.h>
#include <rpc/rpc.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

static void dispatch(struct svc_req *request, SVCXPRT *transport)
{
	if (request->rq_proc != NULLPROC)
		svcerr_noproc(transport);
	else
		svc_sendreply(transport, (xdrproc_t)xdr_void, NULL);
}

static int fail(const char *what)
{
	perror(what);
	return 1;
}

int main(int count, char **arguments)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof at;

	if (count != 3) {
		fprintf(stderr, "usage: %s PROGRAM VERSION\n", arguments[0]);
		return 2;
	}
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	if (listener < 0 || bind(listener, (struct sockaddr *)&at, len) || listen(listener, 16))
		return fail("listen");
	if (getsockname(listener, (struct sockaddr *)&at, &len))
		return fail("getsockname");
	SVCXPRT *transport = svc_vc_create(listener, 0, 0);
	rpcprog_t program = strtoul(arguments[1], NULL, 0);
	rpcvers_t version = strtoul(arguments[2], NULL, 0);
	/* Without a netconfig it is registered in this process only. */
	if (!transport || !svc_reg(transport, program, version, dispatch, NULL)) {
		fprintf(stderr, "libtirpc does not serve\n");
		return 1;
	}
	printf("PORT %d\n", ntohs(at.sin_port));
	fflush(stdout);
	svc_run();
	fprintf(stderr, "svc_run came back\n");
	return 1;
}
