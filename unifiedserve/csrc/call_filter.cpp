#include "call_filter.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <system_error>
#include <vector>

namespace unified {
namespace {

#if defined(__x86_64__)
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#else
constexpr std::uint32_t kArchitecture = 0;
#endif
constexpr std::uint32_t kForeignCalls = 0x40000000;  // x86-64's calls of 32 bits begin here; others have none so high

using Program = std::vector<sock_filter>;

// Calls that are refused whatever they are given.
constexpr std::array kRefused = {
    // other programs, and other processes
    SYS_execve,
    SYS_execveat,
    SYS_ptrace,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_kcmp,
    SYS_kill,
    SYS_tkill,
    SYS_rt_sigqueueinfo,
    SYS_rt_tgsigqueueinfo,
    SYS_pidfd_open,
    SYS_pidfd_getfd,
    SYS_pidfd_send_signal,
    SYS_migrate_pages,
    SYS_move_pages,
    // who one is
    SYS_setuid,
    SYS_setgid,
    SYS_setreuid,
    SYS_setregid,
    SYS_setresuid,
    SYS_setresgid,
    SYS_setgroups,
    SYS_setfsuid,
    SYS_setfsgid,
    SYS_capset,
    SYS_personality,
    // what all see
    SYS_mount,
    SYS_umount2,
    SYS_pivot_root,
    SYS_chroot,
    SYS_unshare,
    SYS_setns,
    SYS_open_tree,
    SYS_move_mount,
    SYS_fsopen,
    SYS_fsconfig,
    SYS_fsmount,
    SYS_fspick,
    SYS_mknodat,
    SYS_quotactl,
    SYS_swapon,
    SYS_swapoff,
    SYS_acct,
    SYS_reboot,
    SYS_sethostname,
    SYS_setdomainname,
    SYS_settimeofday,
    SYS_clock_settime,
    SYS_adjtimex,
    SYS_clock_adjtime,
    SYS_syslog,
    SYS_vhangup,
    // the kernel's less trodden paths
    SYS_bpf,
    SYS_perf_event_open,
    SYS_userfaultfd,
    SYS_io_uring_setup,
    SYS_io_uring_enter,
    SYS_io_uring_register,
    SYS_add_key,
    SYS_request_key,
    SYS_keyctl,
    SYS_init_module,
    SYS_finit_module,
    SYS_delete_module,
    SYS_kexec_load,
    SYS_kexec_file_load,
    SYS_open_by_handle_at,
    SYS_name_to_handle_at,
    SYS_fanotify_init,
    SYS_lookup_dcookie,
#if defined(__x86_64__)
    SYS_fork,
    SYS_vfork,
    SYS_mknod,
    SYS_iopl,
    SYS_ioperm,
    SYS_modify_ldt,
    SYS_ustat,
    SYS_sysfs,
    SYS_uselib,
#endif
};

// Sockets of the network cannot be made, and a process with a filter has inherited none: these are left to AF_UNIX.
constexpr std::array kOfSockets = {SYS_connect, SYS_bind, SYS_listen, SYS_accept, SYS_accept4};

constexpr std::uint32_t refused(int error) { return SECCOMP_RET_ERRNO | (static_cast<std::uint32_t>(error)); }

void load(Program& program, std::size_t offset) {
  program.push_back({BPF_LD | BPF_W | BPF_ABS, 0, 0, static_cast<std::uint32_t>(offset)});
}

// An argument's lower half, which is all that the kernel reads of an int.
void load_argument(Program& program, std::size_t index) {
  load(program, offsetof(seccomp_data, args) + index * sizeof(std::uint64_t));
}

void load_call(Program& program) { load(program, offsetof(seccomp_data, nr)); }

void end(Program& program, std::uint32_t how) { program.push_back({BPF_RET | BPF_K, 0, 0, how}); }

// Skips so many instructions if the comparison with `value` holds, or if it does not.
void jump(Program& program, unsigned test, std::uint32_t value, std::uint8_t if_so, std::uint8_t if_not) {
  program.push_back({static_cast<std::uint16_t>(BPF_JMP | test | BPF_K), if_so, if_not, value});
}

void refuse(Program& program, long call, int error) {
  jump(program, BPF_JEQ, static_cast<std::uint32_t>(call), 0, 1);
  end(program, refused(error));
}

// Refuses a call unless (`wanted`), or if, its argument compares so.
void refuse_by(Program& program, long call, std::size_t argument, unsigned test, std::uint32_t value, bool wanted) {
  jump(program, BPF_JEQ, static_cast<std::uint32_t>(call), 0, 4);
  load_argument(program, argument);
  jump(program, test, value, static_cast<std::uint8_t>(wanted ? 1 : 0), static_cast<std::uint8_t>(wanted ? 0 : 1));
  end(program, refused(EPERM));
  load_call(program);
}

void refuse_foreign_calls(Program& program) {
  load(program, offsetof(seccomp_data, arch));
  jump(program, BPF_JEQ, kArchitecture, 1, 0);
  end(program, SECCOMP_RET_KILL_PROCESS);
  load_call(program);
  jump(program, BPF_JGE, kForeignCalls, 0, 1);
  end(program, refused(ENOSYS));
}

Program program_for(bool unix_sockets) {
  constexpr std::uint32_t kTypeIntoTerminal = 0x5412, kPasteIntoTerminal = 0x541C;  // TIOCSTI, TIOCLINUX
  Program program;
  refuse_foreign_calls(program);
  for (const long call : kRefused) refuse(program, call, EPERM);
  refuse(program, SYS_clone3, ENOSYS);  // its flags cannot be seen: the C library takes clone then
  refuse_by(program, SYS_clone, 0, BPF_JSET, CLONE_THREAD, true);
  if (unix_sockets) {
    refuse_by(program, SYS_socket, 0, BPF_JEQ, AF_UNIX, true);
  } else {
    refuse(program, SYS_socket, EPERM);
    for (const long call : kOfSockets) refuse(program, call, EPERM);
  }
  refuse_by(program, SYS_tgkill, 0, BPF_JEQ, static_cast<std::uint32_t>(::getpid()), true);
  refuse_by(program, SYS_prlimit64, 0, BPF_JEQ, 0, true);
  refuse_by(program, SYS_ioctl, 1, BPF_JEQ, kTypeIntoTerminal, false);
  refuse_by(program, SYS_ioctl, 1, BPF_JEQ, kPasteIntoTerminal, false);
  end(program, SECCOMP_RET_ALLOW);
  return program;
}

[[noreturn]] void fail(const char* what) { throw std::system_error(errno, std::generic_category(), what); }

}  // namespace

bool has_call_filters() {
  const std::uint32_t action = SECCOMP_RET_ERRNO;
  return kArchitecture != 0 && ::syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0;
}

bool restrict_calls(bool unix_sockets) {
  if (!has_call_filters()) return false;
  Program program = program_for(unix_sockets);
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) fail("PR_SET_NO_NEW_PRIVS");
  // Older kernels slow down whoever has a filter, unless told that it keeps no secrets from itself.
  constexpr unsigned kFlags = SECCOMP_FILTER_FLAG_TSYNC | SECCOMP_FILTER_FLAG_SPEC_ALLOW;
  if (::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, kFlags, &filter) != 0) fail("seccomp");
  return true;
}

}  // namespace unified
