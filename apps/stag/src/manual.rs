//! The long texts of `--help`. Lines have at most 78 columns, so that no terminal breaks them.

/// What the command is.
pub const ABOUT: &str = "\
Stag serves and calls ONC RPC over RDMA from user space. It needs no RDMA
device: over iwarp:// it is its own software RNIC, and speaks to the Linux
kernel (siw) and to iWARP adapters; over shm:// processes of one host share
memory.";

/// What is behind the options of the command itself.
pub const FOOTER: &str = "\
EXAMPLES
  See it work, on this host and without any preparation:
      stag demo

  Serve a directory to this host, and check the server from another terminal:
      stag serve /srv/data
      stag load iwarp://127.0.0.1:20049/data

  Serve two directories, one of them read-only, to a network, on two cores:
      stag serve /srv/data /srv/media:ro --listen iwarp://10.0.0.1:20049 \\
          --clients 10.0.0.0/24 --cores 2

ENVIRONMENT
  STAG_LOG        What is logged on standard error: error, warn, info, debug,
                  trace or off (default: info). Connections and refusals are
                  logged, calls never.
  STAG_STATE_DIR  Default of 'stag serve --state-dir'.

EXIT CODES
  0  Done, or stopped by a signal after all in progress was finished.
  1  Something failed while running; with 'stag load', a step failed.
  2  The command cannot be carried out as given. One sentence on standard
     error says what to change.";

/// What `serve` does.
pub const SERVE: &str = "\
Serves directories over NFS version 3 and MOUNT version 3, on RDMA and on
TCP, until a signal stops it.

Every DIR is exported as /NAME, where NAME is its last component. One TCP
port answers MOUNT and NFS: Linux asks MOUNT over TCP also when it mounts
over RDMA. File handles survive a restart.

With --memory files live in this process' memory and are lost with it: fast,
and for what may be lost. A DIR is then copied in at start and never changed;
without one, an empty export is served as --name (default: memory).

Once ready, it prints a block on standard output, from a line READY to a line
END: the addresses in use (LISTEN, TCP), the exports (EXPORT /NAME rw|ro), and
for each of them the mount command and the line for /etc/fstab. Everything
else goes to standard error.";

/// What is behind the options of `serve`.
pub const SERVE_FOOTER: &str = "\
EXAMPLES
  stag serve /srv/data
  stag serve /srv/data:ro --name archive
  stag serve --memory 512M --name scratch
  stag serve /srv/data --listen iwarp://10.0.0.1:20049 \\
      --clients 10.0.0.0/24,fd00::/8 --stats /run/stag.json
  stag serve /srv/data --listen iwarp://127.0.0.1:0 --tcp 127.0.0.1:0
      takes free ports; the READY block says which.

WHO MAY CONNECT
  A server that listens at loopback addresses only takes clients of its host.
  Any other address needs --clients, and then nobody else may connect: to have
  clients of this host too, list 127.0.0.0/8 and ::1.
  Where callers could act as more than they are (in privileged mode, and when
  root serves a directory in any mode) they have to connect from a port below
  1024, which only root of their host can take: over TCP always (Linux does so
  by itself), over RDMA from this host. From other hosts any port is taken
  over RDMA, because Linux's NFS takes none below 1024 there: list only hosts
  whose users may all act as each other. 'stag call', 'load' and 'bench' take
  such ports when root runs them. --insecure takes callers from any port: any
  user of their hosts can then act as any other. Linux needs it to mount over
  RDMA from this very host, and with -o noresvport.
  Refusals are logged with their reason.

SHARED MEMORY (--listen shm:///PATH)
  Processes of this host connect through the socket PATH. They have no way
  into this server's memory: each side reads what the other wrote into a ring
  of its own. With shm:///PATH?trust=uid, processes of the same user that ask
  for the same may map this server's buffers, to read them, and payload is
  copied once instead of twice. Only this server's user and root may connect,
  and whom --shm-allow names; where ports have to be below 1024, only root,
  unless --insecure is given. With --cores N, shard I listens at PATH.I, but
  for the first. Each scheme of --listen has cores of its own.

WHO CALLERS ARE
  --mode privileged    Every caller acts as the user it names, and the kernel
                       judges what that user may do. Needs root. Callers that
                       say they are root act as the anonymous user, unless
                       --squash none; with --squash all, every caller does.
                       A server that only root of this host can call as root
                       (loopback addresses, no --insecure) squashes nobody
                       unless it is told.
  --mode unprivileged  Every caller acts as the user that runs this command,
                       whatever user it says it is.
  --mode auto          Privileged if this process can, else unprivileged. What
                       it is, is said at start.
  With --memory everybody may do everything, also make devices and set-uid
  programs: mount it with nosuid,nodev. docs/permissions.md has all of it.

FILES
  The state directory holds the key of the file handles, the numbers of the
  exports, and the index by which a file is found again after a restart: what
  must stay, or clients have to mount again. It is made with mode 0700, must
  not lie under an export, and is used by one server at a time.
  Default: $STAG_STATE_DIR, else /var/lib/stag for root, and
  ${XDG_STATE_HOME:-~/.local/state}/stag for other users.

WHAT IS HELD OPEN
  Files that are in use stay open: on each core at most 16,384, fewer where
  RLIMIT_NOFILE (ulimit -n) allows no more. A descriptor to write by closes
  within three seconds after the last WRITE; a program that was stored can
  then be executed on this host, and its file system be made read-only. Any
  other closes about five seconds after the last call about the file. What is
  removed or replaced through this server is closed at once, what is removed
  on this host when it is idle, or as soon as its space is needed.
  Where files are found by their names (--mode unprivileged, or a file system
  without handles), one that is renamed on this host while nobody uses it is
  stale until a client looks up its new name.

MOUNT POINTS AND DELETED DIRECTORIES
  A file system that is mounted below a DIR is not part of its export: the
  mount point is listed without attributes, and LOOKUP, RMDIR and RENAME of it
  are answered with NFS3ERR_ACCES (permission denied). Export that directory
  as another DIR.
  A DIR that is deleted while it is served cannot be mounted (MNT3ERR_NOENT).
  When it is made again it can, without a restart; who mounted the former one
  has to mount again.

STATISTICS (--stats FILE)
  One JSON object, written at the end and on SIGUSR1, always as a whole.
    version, uptime_s     Of this server.
    shards[]              One object for each core: the members of total, and
                          core, its number, or null if it is not pinned.
    total                 The sum of all shards; of grant and failed_syncs,
                          which are not counts of one shard, the largest.
  The members of total, all counted since the start:
    engine.connections    fabric, tcp, refused, live.
    engine.responder      calls and replies by form (short, chunked, long);
                          errors; chunks and segments that calls offered
                          (read, write, reply); octets pulled and pushed;
                          writes; remote_invalidations; reply_chunks_spared;
                          grant, the credits of each connection.
    engine.requester      The same for calls of this server.
    engine.stream         RPC over TCP: calls, replies, octets, system calls.
    engine.peer_faults    Rules that peers broke.
    engine.disconnects    How connections ended, by cause.
    engine.limits         How often a limit was met, by limit.
    engine.passes         Turns of the loop, and how often the core slept.
    stages                Where the time of calls goes. every: 1 call in so
                          many is watched (--sample); calls: how many were;
                          stages[]: stage, samples, p50_us, p99_us (null with
                          less than 10 samples beyond), max_us. The stages:
                          recv   from the start of the loop's turn that found
                                 the message to its own turn
                          parse  its headers are validated
                          pull   its Read chunks are pulled, waiting for
                                 memory included; of calls that have some
                          app    it is answered, waiting for the disk included
                          emit   the reply's headers are built
                          push   RDMA Writes are posted; of replies with some
                          send   until the doorbell, or over TCP the socket;
                                 waiting for room to send included
    app.nfs3, app.mount3  By procedure: calls, and errors by status.
    app.data              octets_read, octets_written, unstable_writes,
                          commits, short_of_memory; READs by where their
                          octets were: reads_cached (in memory), reads_brought
                          (io_uring read them to the buffer that is sent),
                          reads_warmed (a helper waited for the disk),
                          reads_blocking (the shard did), reads_direct (the
                          file system does not say).
    app.refused           Calls that reached no procedure, by reason.
    iwarp                 FPDUs, octets and system calls; crc_errors;
                          terminates_sent and terminates_received by cause;
                          handshakes that failed and disconnects, by reason;
                          where a rule of iWARP is bent for software peers:
                          without_crc, long_fpdus, marked_frames.
    shm                   Processes (links), records, octets copied and
                          fetched, wake-ups, looks at sockets; how
                          connections ended: violations, corrupt, lost.

  With --stages, whoever may connect may also ask for the stages of the shard
  that it reached ('stag bench --stages'): histograms of times, but nothing of
  who called or of what. It is ONC RPC program 0x20535453, version 1.

SIGNALS
  SIGTERM, SIGINT, SIGHUP, SIGXCPU
                   Take no more clients, finish the calls in progress,
                   disconnect, write statistics, exit with 0. A second one
                   stops at once, without statistics, and exits with 1.
                   SIGHUP does nothing under nohup.
  SIGUSR1          Write statistics.
  SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF, SIGIO
                   Nothing but a line in the log.
  SIGXFSZ          Ignored: a WRITE or SETATTR behind the file size limit of
                   this process (ulimit -f) is answered with NFS3ERR_FBIG.
  If NOTIFY_SOCKET is set, systemd is told READY=1 and STOPPING=1.

EXIT CODES
  0  Stopped by a signal.
  1  Failed while running.
  2  Cannot start as given. One sentence on standard error says why.";

/// What `demo` does.
pub const DEMO: &str = "\
Starts a gateway on a temporary directory as a child process, on software
iWARP over loopback, and calls it: every procedure, every size that matters
with every octet compared, rates and round trips. Then it cuts a connection,
kills the server (SIGKILL) in the middle of a stream of WRITEs, starts it
again, and compares everything once more. Then the same from memory, and from
memory over shared memory. At the end it prints a table of each.

It needs no root, no RDMA device and no configuration, and leaves nothing
behind, also when it is interrupted. Progress goes to standard error.";

/// What is behind the options of `demo`.
pub const DEMO_FOOTER: &str = "\
EXAMPLES
  stag demo
  stag demo --quick --json | jq '.stores[].killed'

OUTPUT (--json)
  One object.
    version, passed, failure, elapsed_s
    stores[]   store, fabric, start_ms, procedure_steps, procedure_calls;
               sizes[] with the forms that each took; rates (calls_per_s, and
               round_trips in microseconds: null where too few samples lie
               beyond a percentile); requester, as in 'stag serve --stats';
               pulled and pushed, octets; lost (null where none can be cut)
               and killed, in milliseconds; killed.replayed and
               checked_again, octets.

EXIT CODES
  0    Everything was as it should be.
  1    A step failed; one sentence on standard error says which and why.
  2    The command cannot be carried out as given.
  130  Interrupted by a signal.";

/// What `probe` does.
pub const PROBE: &str = "\
Says which fabrics work on this host and why the others do not, by letting two
ends of each meet; and what the host offers: cores, huge pages, locked memory.";

/// What is behind the options of `probe`.
pub const PROBE_FOOTER: &str = "\
EXAMPLES
  stag probe
  stag probe shm rdma --json | jq '.fabrics[] | select(.works) | .scheme'
  ExecStartPre=/usr/bin/stag probe rdma      in a systemd unit

OUTPUT (--json)
  One object: version; fabrics[] (scheme, works, why, first_message_us,
  limits, facts, an object by name, and ports[] of RDMA devices); host.

EXIT CODES
  0  The fabrics that have to work do: iwarp, or those that were named.
  1  One of them does not; one sentence on standard error says why.
  2  The command cannot be carried out as given.";

/// What `call` does.
pub const CALL: &str = "\
Calls an NFS version 3 server, where one cannot mount: over RDMA by the
software RNIC (iwarp://), by shared memory from the same host (shm://), or
over TCP (tcp://). The server is told the user and group that run this command
(AUTH_SYS).

Whole files are moved by several READs or WRITEs at a time. Over iwarp:// a
lost connection is made again and calls go out again; WRITEs that a restarted
server lost before COMMIT are written again.";

/// What is behind the options of `call`.
pub const CALL_FOOTER: &str = "\
EXAMPLES
  stag call iwarp://127.0.0.1:20049/data ls -l
  stag call iwarp://127.0.0.1:20049/data/notes.txt cat
  stag call 'shm:///run/stag.sock:/data/notes.txt?trust=uid' cat
  stag call iwarp://127.0.0.1:20049/data put -r --verify tree
  stag call iwarp://127.0.0.1:20049/data/tree get -r /tmp | sha256sum -c
  stag call tcp://server/srv/data df
      Any server with a port mapper, which is asked where NFS and MOUNT are.
  stag call 'tcp://server:2049/srv/data?mountport=20048' df
      Without: a Linux server's mountd has a port of its own. Root's calls
      come from ports below 1024; those of others a Linux server takes only
      with the export option 'insecure', and 'stag serve' with --insecure.

URL
  The path begins with an export, as 'mount' lists them; the longest that fits
  is mounted. Where a server does not answer MOUNT, its port mapper is asked
  for the port, unless ?mountport=N says it. In names, %XX is the octet with
  that hexadecimal number; '?' has to be written %3F. Symbolic links in the
  path are not followed.
  rdma:// needs an RDMA device, and a stag built with --features verbs.

CHECKSUMS
  'get' and 'put' print a line for each file as sha256sum does, with the local
  path. --verify reads back what was stored, from the other side of the copy.

OUTPUT (--json)
  null   server, rpcrdma_version, round_trips_us[]
  health server, credits_granted, credits_in_use
  mount  export, handle, exports[]; of a URL without an export: null, null
  ls     [] of what stat gives
  stat   name, kind, target, mode, uid, gid, size, used, nlink, fileid, fsid,
         atime, mtime, ctime (seconds, nanos), handle
  get, put   files[] (path, octets, sha256), directories, symbolic_links,
             skipped[], octets, calls, replayed, verified, elapsed_s
  rm     removed;  mkdir  made, handle
  df     total_, free_ and available_ octets and files

EXIT CODES
  0  Done.
  1  Something failed: one sentence on standard error names the call and why.
  2  The command cannot be carried out as given.";

/// What `load` does.
pub const LOAD: &str = "\
Calls an NFS version 3 server over RDMA or TCP and checks what it does: every
procedure, files of 0 to 3,000,001 octets with every octet compared, odd
offsets, truncation, names, links, access control lists if the server has
them, a directory of 2,000 entries, and all that has to fail. It works in a
directory of its own under the export, which it removes at the end; so the
export must be one that it may write to.

Progress and result go to standard output.";

/// What is behind the options of `load`.
pub const LOAD_FOOTER: &str = "\
EXAMPLES
  stag load iwarp://127.0.0.1:20049/data
  stag load iwarp://127.0.0.1:20049/data --json | jq '.steps[].elapsed_us'
  stag load iwarp://10.0.0.1:20049/srv/data?mountport=20048
      a Linux server, where MOUNT has a port of its own.

OUTPUT (--json)
  One object.
    version, url, export, seed   What was run, and on what.
    passed, failed, skipped      Steps.
    calls, octets, elapsed_us    Of the whole run; octets of file data.
    losses                       Times that the connection was lost.
    steps[]                      name, passed, calls, octets, elapsed_us, and
                                 failure: null, or what was tried, what was
                                 expected, what came, and whether it is fatal.
    engine                       What the calling side counted, as in
                                 'stag serve --stats'.

EXIT CODES
  0  Every step passed.
  1  A step failed, or there is no connection.
  2  Cannot start as given. One sentence on standard error says why.
  130
     Stopped by SIGINT, SIGTERM or SIGHUP. The first one ends the run behind
     the step under way, and what was made on the server is removed. The
     second one leaves at once.";

/// What `bench` does.
pub const BENCH: &str = "\
Measures a server of ONC RPC over RDMA, shared memory or TCP: how many calls
it answers per second, and how long they take.

In a closed loop, --depth calls are outstanding on each connection, and each
answer starts the next call. With --rate it is an open loop: each call has the
time at which it is meant to go out, whatever the server does meanwhile. Two
times are written down of each call, both full round trips: the service time,
from when the call was written to when its reply was read and compared; and
the response time, from when it was meant to go out. In an open loop, a server
that stops for a moment shows in the response times of all calls that were
meant for that moment.";

/// What is behind the options of `bench`.
pub const BENCH_FOOTER: &str = "\
EXAMPLES
  stag echo --listen shm:///tmp/echo.sock
      in one terminal, and in another:
  stag bench shm:///tmp/echo.sock --depth 32
  stag bench shm:///tmp/echo.sock --workload push --size 64,4K,64K,1M
  stag bench iwarp://127.0.0.1:20049/data --workload nfs3:read --rate 20K
  stag bench iwarp://127.0.0.1:20049/data --rate 10K,20K --json ladder.json
  stag bench compare before.json after.json
  stag bench versus shm:///tmp/one.sock shm:///tmp/other.sock --depth 8
  stag bench report ladder.json --html ladder.html

WORKLOADS
  null         NULL: of NFS if the URL names an export, else of 'stag echo'
  echo         --size octets there and back (against 'stag echo')
  pull, push   --size octets there, or back: the server pulls them from a Read
               chunk, or pushes them into a Write chunk, when they do not fit
               inline (against 'stag echo')
  mixed        half null, the rest echo, pull and push alike
  reverse      The server calls, over the connections that were made to it
               (RFC 8167), --depth calls on each, --size octets there and
               back (against 'stag echo'). It tells how long each took, which
               only the side that calls can know. A closed loop; on version 1
               calls have to fit inline, on version 2 they have chunks.
  connstorm    Connect, NULL, disconnect; --connections at a time, or with
               --rate at their times. A call is a connection: calls/s are
               connections per second, 'connected' is until one stood, the
               service time until its first reply. They come from ports above
               1023, as do those beyond 359 of any workload: 'stag serve' as
               root needs --insecure for that.
  nfs3:getattr, nfs3:lookup, nfs3:read, nfs3:write
               One procedure of NFS version 3. READ and WRITE move blocks of
               --size octets at random places; WRITE is FILE_SYNC.
  nfs3:mixed   70 READs to 30 WRITEs
  nfs3:meta    CREATE, LOOKUP, REMOVE, and again
  The nfs3 workloads make a directory stag-bench-… below the URL's path, with
  a file of --file-size octets for each core, and remove it at the end.

PAYLOAD
  Every octet that comes is compared with what it should be, by the server
  for 'pull'; what nfs3:write wrote is read again at the end. With --no-verify
  only lengths are.

WHO WAS SLOW
  The generator watches itself. Its send lag is by how much calls went out
  later than they could have; 'stolen' is the time that others took from the
  host's cores (/proc/stat); it counts how often its threads lost their core
  (preemptions), and the longest time that it stood still (gap_max_us). When
  they, the load of the host, or a floor that could not be measured may
  explain what was measured, a note says so. It polls without pause, on the
  last cores of this process; servers take the first ones. With fewer cores
  than both need, figures mean little.

A SERVER THAT DIES
  ends the run: no more calls are made, and gave_up_s and a note say when.
  Calls under way count as failed. In an open loop those that were due until
  the end of the run count as unsent, and among the response times. What
  was made at the server stays there, and left_behind names it.

STAGES (--stages)
  1 call in 64 is watched on its way here: queue (from when it was meant to go
  out until it is written), emit (it and the others of its turn are written
  and posted), send (until the doorbell), reply (until the reply is looked at,
  waiting for a credit included), verify (it is compared). They add up to the
  response time. The server is asked for its own stages over every connection,
  before the run and after: 'stag echo' tells them, and 'stag serve --stages';
  of another one a note says that it does not. What they mean: STATISTICS in
  'stag serve --help'. They are those of all calls that these shards answered
  meanwhile, warm-up and other clients included.

PERCENTILES
  One is shown when at least 10 samples lie beyond it; else n/a. Calls that
  were due and were not made until the end count among the response times
  with the time that they had waited, and are counted as unsent.

OUTPUT (--json)
  One object, or a list of them for several sizes or rates; times in
  microseconds. A member that changes its meaning changes 'schema'. The file
  is opened before the run: a path that cannot be written ends it at once.
    schema               stag-bench/1
    version, began_unix_s
    setup                What was asked for: url, workload, size, connections,
                         depth, cores, rate, arrivals, warm_up_s, duration_s,
                         calls, verified, seed, rdma_version (as given)
    rdma_version         The version that was spoken; null over TCP
    host                 name, kernel, processor, cores, load, and floors_ns:
                         a word's round trip between two cores, before and
                         after
    elapsed_s, calls, failed, failure, stopped, unsent, calls_per_s,
    octets_per_s
    gave_up_s            When the run failed and made no more calls: seconds
                         from when measuring began, below 0 in the warm-up
    left_behind          What could not be removed at the server, and why
    connected            As service; of connstorm only
    service, response    samples, min_us, mean_us, stdev_us, max_us;
                         percentiles_us (50, 90, 99, 99.9, 99.99, 99.999;
                         null without enough samples); histogram: an
                         HdrHistogram of nanoseconds, V2, deflated, base64
    client               lag (as service), turns, gap_max_us, preemptions,
                         stolen, pinned, doubts[]
    stages               With --stages: every; client[], the stages here, each
                         stage, its name, with the members of service; server
                         (null when it does not tell: every, shards, stages[]
                         as client[]); unasked, why it does not
    seconds[]            second, calls, octets, failed, service_ and
                         response_p50_us, _p99_us, response_max_us,
                         lag_max_us, stolen; service, response and of
                         connstorm connected, histograms

JOB FILES (--job FILE)
  TOML, with the long names of the options and url:
      url = 'iwarp://127.0.0.1:20049/data'
      workload = 'nfs3:read'
      rate = ['10K', '20K']
      no-verify = true
  Options of the command line override it. A name that is not known stops.

LOOKING FOR A RATE (--slo P=US)
  Open loops one after the other, with twice the rate until the promise is not
  kept, then between: the highest rate that keeps it, within 5 %.

REPORTS (bench report RESULT.json…)
  --html FILE     One page: response time by percentile, over time, against
                  throughput and size, stages, and whatever casts doubt on
                  the figures. It loads nothing. docs/BENCH.md reads it aloud.
  --hgrm FILE     The percentile distribution, as HdrHistogram prints it.
  --hdr-log FILE  An interval log, V2, with tags response, service and
                  connected.
  --format fio    JSON as fio's: slat is the send lag, clat the service time,
                  lat the response time.
  --format perftest
                  The line of ib_send_lat: of HALF round trips.

COMPARING (bench compare BEFORE.json AFTER.json)
  Each whole second of a run gives one median, one p99 and one rate; five are
  needed. A quantity is worse when the middle of its seconds changed by more
  than --noise, and the seconds rank so that chance alone would do it with a
  probability below --alpha (Mann-Whitney). Runs that were made differently,
  whose calls failed, or whose floors_ns differ by more than 1.3 times (the
  host was in another state) are refused, unless they took turns: those of
  'versus' say so themselves, of others --interleaved does.

IN TURNS (bench versus URL_A URL_B)
  Measures both with the same options, one behind the other, --rounds times;
  who is first is so in every second round. A round gives the ratio of each
  quantity, B to A, of two runs that met the same state of the host; it
  counts unless the floor moved by more than 1.5 times in it, or a run of it
  ended before a call was answered. B is worse when the middle of the ratios
  is worse by more than --noise, and the ratios rank so that chance alone
  would do it with a probability below --alpha (Wilcoxon's signed ranks,
  exact). --json: rounds[] with both results of each, ratios[] with their
  lowest and highest, worse, refused (why not), and results, the runs of each
  joined, for 'report' and 'compare'. Its schema is stag-bench-versus/1.

EXIT CODES
  0  Done; with 'compare' and 'versus', nothing is worse.
  1  There is no connection, or a call failed; a sentence says which first.
     With 'compare' and 'versus', something is worse.
  2  Cannot start as given. One sentence on standard error says why.
  3  With 'compare' and 'versus': the runs cannot be compared.
  130, 143, 129
     Stopped by SIGINT, SIGTERM or SIGHUP. The first one ends the run: what
     was measured is printed, and what was made on the server is removed
     (130). The second one leaves at once.";

/// What `echo` does.
pub const ECHO: &str = "\
Serves the echo program, over RDMA or shared memory and over TCP, on one core,
until a signal stops it: something to measure with 'stag bench'.";

/// What is behind the options of `echo`.
pub const ECHO_FOOTER: &str = "\
EXAMPLES
  stag echo
  stag echo --listen 'shm:///tmp/echo.sock?trust=uid' --tcp 127.0.0.1:0

OUTPUT
  Once ready, a line READY, LISTEN and TCP with the addresses in use, END.
  When it stops, on standard error: how long calls were in each stage, of 1
  call in 64 (--sample), as under STATISTICS in 'stag serve --help'.

PROGRAM
  0x20535441, version 1. 0 NULL; 1 ECHO: opaque<> there and back; 2 is for
  callers that take calls; 3 PULL: a place and opaque<>, returns 1 when they
  are the octets that belong there; 4 PUSH: a place and a length, returns
  opaque<>; 5 DRIVE: makes calls of 6 LAP to the caller until that says that
  it is enough. Beside it program 0x20535453, version 1, tells the stages:
  1 ASK, for 'stag bench --stages'.

EXIT CODES
  0  Stopped by a signal.
  1  Failed while running.
  2  Cannot start as given. One sentence on standard error says why.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_is_broken_by_a_terminal_of_80_columns() {
        for text in [
            ABOUT,
            FOOTER,
            SERVE,
            SERVE_FOOTER,
            DEMO,
            DEMO_FOOTER,
            CALL,
            CALL_FOOTER,
            LOAD,
            LOAD_FOOTER,
            PROBE,
            PROBE_FOOTER,
            BENCH,
            BENCH_FOOTER,
            ECHO,
            ECHO_FOOTER,
        ] {
            for line in text.lines() {
                assert!(line.chars().count() <= 78, "{line}");
            }
        }
    }
}
