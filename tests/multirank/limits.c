// SPDX-License-Identifier: Apache-2.0
/* Runs a program where something is denied, or scarce.
 *
 * usage: limits WHAT[,WHAT...] PROGRAM [ARGUMENT...]
 *   memfd pidfd futex membarrier cma fallocate
 *                      that system call is denied, as seccomp(2) does in containers (futex: only
 *                      as kolo calls it; without it glibc ends any program with threads)
 *   files=N memlock=N  that many descriptors; bytes of locked memory
 *   noshm              /dev/shm is empty and cannot be written to (needs root) */
#include <errno.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static int apply(const struct sock_filter *code, size_t count)
{
    const struct sock_fprog program = {(unsigned short)count, (struct sock_filter *)code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0;
}

static int deny(long number)
{
    const struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    return apply(code, sizeof code / sizeof *code);
}

static int deny_shared_futex(void)
{
    const struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_futex, 0, 4),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, FUTEX_WAIT, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, FUTEX_WAKE, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    return apply(code, sizeof code / sizeof *code);
}

static int set_limit(int what, const char *text)
{
    const rlim_t most = (rlim_t)strtoull(text, NULL, 10);
    const struct rlimit limit = {most, most};
    return setrlimit((__rlimit_resource_t)what, &limit);
}

static int hide_shm(void)
{
    return unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
           mount("none", "/dev/shm", "tmpfs", MS_RDONLY, "size=4k") != 0;
}

static int limit(const char *what)
{
    return strcmp(what, "memfd") == 0        ? deny(SYS_memfd_create)
           : strcmp(what, "pidfd") == 0      ? deny(SYS_pidfd_open)
           : strcmp(what, "futex") == 0      ? deny_shared_futex()
           : strcmp(what, "membarrier") == 0 ? deny(SYS_membarrier)
           : strcmp(what, "fallocate") == 0  ? deny(SYS_fallocate)
           : strcmp(what, "cma") == 0 ? deny(SYS_process_vm_readv) || deny(SYS_process_vm_writev)
           : strncmp(what, "files=", 6) == 0   ? set_limit(RLIMIT_NOFILE, what + 6)
           : strncmp(what, "memlock=", 8) == 0 ? set_limit(RLIMIT_MEMLOCK, what + 8)
           : strcmp(what, "noshm") == 0        ? hide_shm()
                                               : (errno = EINVAL);
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        (void)fprintf(stderr, "usage: limits WHAT[,WHAT...] PROGRAM [ARGUMENT...]\n");
        return 2;
    }
    for (char *what = strtok(argv[1], ","); what != NULL; what = strtok(NULL, ",")) {
        if (limit(what) != 0) {
            (void)fprintf(stderr, "limits: %s: %s\n", what, strerror(errno));
            return 77;
        }
    }
    execv(argv[2], argv + 2);
    perror(argv[2]);
    return 2;
}
