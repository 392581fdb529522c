/* Lets User-Mode Linux up to 6.12 run on processors with AMX.
 *
 * It sets its processes' extended registers with ptrace, from a buffer sized for registers up to
 * AVX-512. A host kernel that knows more of them takes nothing but the whole set. So the set is read
 * first, the part that the guest knows is put over it, and all of it goes back. Preloaded, this
 * stands in front of the C library's function of the same name; its arguments are all words, so it
 * needs no variable argument list. */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <linux/ptrace.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* More than any processor's set so far: AMX takes 11 KiB. Not on the stack, since the guest's kernel
 * has 16 KiB of it; the guest has one processor and does not switch tasks within a call. */
static char set[1 << 14] __attribute__((aligned(64)));

static long call(long request, long process, void *address, void *data)
{
	return syscall(SYS_ptrace, request, process, address, data);
}

long ptrace(long request, long process, void *address, void *data)
{
	/* The call itself stores a peeked word, the function returns it. */
	if (request == PTRACE_PEEKTEXT || request == PTRACE_PEEKDATA || request == PTRACE_PEEKUSR) {
		long word = 0;
		long result = call(request, process, address, &word);
		if (result == 0)
			errno = 0;
		return result < 0 ? result : word;
	}
	if (request == PTRACE_SETREGSET && (long)address == NT_X86_XSTATE) {
		const struct iovec *known = data;
		struct iovec whole = { set, sizeof set };
		if (call(PTRACE_GETREGSET, process, address, &whole) == 0 &&
		    whole.iov_len > known->iov_len) {
			memcpy(set, known->iov_base, known->iov_len);
			return call(request, process, address, &whole);
		}
	}
	return call(request, process, address, data);
}
