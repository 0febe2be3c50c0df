"""The system calls that a sandboxed program is denied, as a classic BPF filter for bubblewrap's --seccomp.

It may start no process or thread, open no socket (some kinds ignore network namespaces) and no pipe, neither
sleep nor wait (but for a lock), share no memory, trace nothing, mount nothing. Another machine's or another
table's system calls (x32) kill it.
"""

import struct
from collections.abc import Mapping

from roles.errors import UserError

_ALLOW, _DENY, _KILL = 0x7FFF0000, 0x00050001, 0x80000000  # deny: error EPERM
_LOAD, _JUMP_IF_EQUAL, _JUMP_IF_AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_NUMBER_AT, _MACHINE_AT = 0, 4  # offsets in struct seccomp_data
_X32 = 0x40000000

# name: (x86_64, aarch64, where fork and vfork are clone, and older calls are the newer ones)
DENIED: Mapping[str, tuple[int, int]] = {
    "clone": (56, 220), "clone3": (435, 435), "fork": (57, 220), "vfork": (58, 220),
    "socket": (41, 198), "socketpair": (53, 199), "pipe": (22, 59), "pipe2": (293, 59),
    "nanosleep": (35, 101), "clock_nanosleep": (230, 115), "pause": (34, 73), "rt_sigsuspend": (130, 133),
    "rt_sigtimedwait": (128, 137), "select": (23, 72), "pselect6": (270, 72), "poll": (7, 73),
    "ppoll": (271, 73),
    "epoll_create": (213, 20), "epoll_create1": (291, 20), "timerfd_create": (283, 85), "signalfd": (282, 74),
    "signalfd4": (289, 74), "inotify_init": (253, 26), "inotify_init1": (294, 26), "flock": (73, 32),
    "ptrace": (101, 117), "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438), "kcmp": (312, 272), "unshare": (272, 97), "setns": (308, 268),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "move_mount": (429, 429), "open_tree": (428, 428), "fsopen": (430, 430), "fsconfig": (431, 431),
    "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442),
    "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265),
    "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195), "msgget": (68, 186), "semget": (64, 190),
    "mq_open": (240, 180), "memfd_create": (319, 279), "memfd_secret": (447, 447), "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "bpf": (321, 280), "perf_event_open": (298, 241), "add_key": (248, 217), "request_key": (249, 218),
    "keyctl": (250, 219), "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "reboot": (169, 142), "syslog": (103, 116),
    "swapon": (167, 224), "swapoff": (168, 225), "acct": (163, 89), "quotactl": (179, 60),
    "personality": (135, 92), "clock_settime": (227, 112), "settimeofday": (164, 170), "vmsplice": (278, 75),
}  # fmt: skip
MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}  # audit number, column of the table


def build_filter(machine: str) -> bytes:
    """The filter for a machine as `os.uname().machine` names it.

    Raises:
        UserError: a machine whose system calls are not in the table.
    """
    if machine not in MACHINES:
        known = ", ".join(MACHINES)
        raise UserError(f"programs cannot be run on a {machine} machine: the sandbox's filter knows {known}")
    audit, column = MACHINES[machine]
    lines = [
        (_LOAD, 0, 0, _MACHINE_AT),
        (_JUMP_IF_EQUAL, 1, 0, audit),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER_AT),
        (_JUMP_IF_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, _KILL),
    ]
    for numbers in DENIED.values():
        lines += [(_JUMP_IF_EQUAL, 0, 1, numbers[column]), (_RETURN, 0, 0, _DENY)]
    lines.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *line) for line in lines)
