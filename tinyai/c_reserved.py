"""Names that C, C++, their libraries and compilers have already.

A function of such a name does not compile, or worse: a library that exports its own ``memcpy``
gives it to the whole program.
"""

from __future__ import annotations

import re

_WORDS = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t
char8_t class co_await co_return co_yield compl complex concept const const_cast consteval constexpr
constinit continue decltype default delete do double dynamic_cast else enum explicit export extern
false float for friend goto if imaginary inline int long mutable namespace new noexcept noreturn not
not_eq nullptr operator or or_eq private protected public register reinterpret_cast requires
restrict return short signed sizeof static static_assert static_cast struct switch template this
thread_local throw true try typedef typeid typename typeof typeof_unqual union unsigned using
virtual void volatile wchar_t while xor xor_eq
"""

# Functions of C's library and of POSIX whose names have no underscore, and what else they declare.
_LIBRARY = """
a64l abort abs accept access acct acos acosf acosh acoshf acoshl acosl alarm aligned_alloc alloca
alphasort arc4random asctime asin asinf asinh asinhf asinhl asinl assert at_quick_exit atan atan2
atan2f atan2l atanf atanh atanhf atanhl atanl atof atoi atol atoll bcmp bcopy bind brk bsearch btowc
bzero cabs cabsf cabsl cacos cacosf cacosh cacoshf cacoshl cacosl calloc carg cargf cargl casin
casinf casinh casinhf casinhl casinl catan catanf catanh catanhf catanhl catanl cbrt cbrtf cbrtl
ccos ccosf ccosh ccoshf ccoshl ccosl ceil ceilf ceill cexp cexpf cexpl chdir chmod chown chroot
cimag cimagf cimagl clearerr clock clog clogf clogl close closedir confstr conj conjf conjl connect
copysign copysignf copysignl cos cosf cosh coshf coshl cosl cpow cpowf cpowl cproj cprojf cprojl
creal crealf creall creat csin csinf csinh csinhf csinhl csinl csqrt csqrtf csqrtl ctan ctanf ctanh
ctanhf ctanhl ctanl ctermid ctime daemon difftime dirfd div dlclose dlerror dlopen dlsym dprintf
drand48 drem dremf dreml dup dup2 duplocale ecvt endhostent endnetent endnetgrent endprotoent
endservent environ erand48 erf erfc erfcf erfcl erff erfl errno execl execle execlp execv execve
execvp exit exp exp2 exp2f exp2l expf expl expm1 expm1f expm1l fabs fabsf fabsl faccessat fchdir
fchmod fchmodat fchown fchownat fclose fcntl fcvt fdatasync fdim fdimf fdiml fdopen fdopendir
feclearexcept fegetenv fegetexceptflag fegetround feholdexcept feof feraiseexcept ferror fesetenv
fesetexceptflag fesetround fetestexcept feupdateenv fexecve fflush ffs ffsl ffsll fgetc fgetpos
fgets fgetwc fgetws fileno finite finitef finitel flockfile floor floorf floorl fma fmaf fmal fmax
fmaxf fmaxl fmemopen fmin fminf fminl fmod fmodf fmodl fopen fork fpathconf fpclassify fprintf fputc
fputs fputwc fputws fread free freeaddrinfo freelocale freopen frexp frexpf frexpl fscanf fseek
fseeko fsetpos fstat fstatat fsync ftell ftello ftruncate ftrylockfile funlockfile futimens fwide
fwprintf fwrite fwscanf gamma gammaf gammal gcvt getaddrinfo getc getchar getcwd getdelim
getdtablesize getegid getentropy getenv geteuid getgid getgroups gethostbyaddr gethostbyname
gethostbyname2 gethostent gethostid gethostname getline getloadavg getlogin getnameinfo getnetbyaddr
getnetbyname getnetent getnetgrent getopt getpagesize getpeername getpgid getpgrp getpid getppid
getprotobyname getprotobynumber getprotoent getservbyname getservbyport getservent getsid
getsockname getsockopt getsubopt getuid getw getwc getwchar gmtime hcreate hdestroy hsearch htonl
htons hypot hypotf hypotl ilogb ilogbf ilogbl imaxabs imaxdiv index initstate insque isalnum isalpha
isascii isatty isblank iscntrl isdigit isfinite isgraph isgreater isinf isinff isinfl isless islower
isnan isnanf isnanl isnormal isprint ispunct isspace isunordered isupper iswalnum iswalpha iswblank
iswcntrl iswctype iswdigit iswgraph iswlower iswprint iswpunct iswspace iswupper iswxdigit isxdigit
j0 j0f j0l j1 j1f j1l jn jnf jnl jrand48 kill killpg l64a labs lchmod lchown lcong48 ldexp ldexpf
ldexpl ldiv lfind lgamma lgammaf lgammal link linkat listen llabs lldiv llrint llrintf llrintl
llround llroundf llroundl localeconv localtime lockf log log10 log10f log10l log1p log1pf log1pl
log2 log2f log2l logb logbf logbl logf logl longjmp lrand48 lrint lrintf lrintl lround lroundf
lroundl lsearch lseek lstat madvise main malloc mblen mbrlen mbrtowc mbsinit mbsnrtowcs mbsrtowcs
mbstowcs mbtowc memccpy memchr memcmp memcpy memmove memset mincore mkdir mkdirat mkdtemp mkfifo
mkfifoat mknod mknodat mkstemp mktemp mktime mlock mlockall mmap modf modff modfl mprotect mrand48
msync munlock munlockall munmap nan nanf nanl nanosleep nearbyint nearbyintf nearbyintl newlocale
nextafter nextafterf nextafterl nexttoward nexttowardf nexttowardl nice nrand48 ntohl ntohs offsetof
open openat opendir openlog pathconf pause pclose perror pipe poll popen pow powf powl pread printf
pselect psignal putc putchar putenv puts putw putwc putwchar pwrite qecvt qfcvt qgcvt qsort
quick_exit raise rand random read readdir readlink readlinkat realloc reallocarray realpath recv
recvfrom recvmsg remainder remainderf remainderl remove remque remquo remquof remquol rename
renameat revoke rewind rewinddir rindex rint rintf rintl rmdir round roundf roundl sbrk scalb scalbf
scalbl scalbln scalblnf scalblnl scalbn scalbnf scalbnl scandir scanf seed48 seekdir select send
sendmsg sendto setbuf setbuffer setegid setenv seteuid setgid sethostent sethostname setjmp
setlinebuf setlocale setlogmask setnetent setnetgrent setpgid setpgrp setprotoent setregid setreuid
setservent setsid setsockopt setstate setuid setvbuf shutdown sigaction sigaddset sigaltstack
sigblock sigdelset sigemptyset sigfillset siginterrupt sigismember siglongjmp signal signbit
significand significandf significandl sigpending sigprocmask sigqueue sigsetmask sigsuspend
sigtimedwait sigwait sigwaitinfo sin sinf sinh sinhf sinhl sinl sleep snprintf sockatmark socket
socketpair sprintf sqrt sqrtf sqrtl srand srand48 srandom sscanf stat stderr stdin stdout stpcpy
stpncpy strcasecmp strcat strchr strcmp strcoll strcpy strcspn strdup strerror strftime strlen
strncasecmp strncat strncmp strncpy strndup strnlen strpbrk strrchr strsep strsignal strspn strstr
strtod strtof strtoimax strtok strtol strtold strtoll strtoul strtoull strtoumax strxfrm swprintf
swscanf symlink symlinkat sync syscall sysconf syslog system tan tanf tanh tanhf tanhl tanl
tcgetpgrp tcsetpgrp tdelete telldir tempnam tfind tgamma tgammaf tgammal time timegm tmpfile tmpnam
tolower toupper towctrans towlower towupper trunc truncate truncf truncl tsearch ttyname twalk tzset
ualarm umask ungetc ungetwc unlink unlinkat unsetenv uselocale usleep utimensat valloc vdprintf
vfork vfprintf vfscanf vfwprintf vfwscanf vprintf vscanf vsnprintf vsprintf vsscanf vswprintf
vswscanf vwprintf vwscanf wait wait3 wait4 waitid waitpid wcpcpy wcpncpy wcrtomb wcscasecmp wcscat
wcschr wcscmp wcscoll wcscpy wcscspn wcsdup wcsftime wcslen wcsncasecmp wcsncat wcsncmp wcsncpy
wcsnlen wcsnrtombs wcspbrk wcsrchr wcsrtombs wcsspn wcsstr wcstod wcstof wcstoimax wcstok wcstol
wcstold wcstoll wcstombs wcstoul wcstoull wcstoumax wcsxfrm wctob wctomb wctrans wctype wmemchr
wmemcmp wmemcpy wmemmove wmemset wprintf write wscanf y0 y0f y0l y1 y1f y1l yn ynf ynl
"""

# Headers without their ending: a package has NAME.h.
_HEADERS = """
assert complex ctype errno features fenv float inttypes iso646 limits locale malloc math memory poll
pthread sched setjmp signal stdalign stdarg stdatomic stdbit stdbool stdckdint stddef stdint stdio
stdlib stdnoreturn string strings tgmath threads time uchar unistd wchar wctype
"""

# Types without their "_t", which a package puts behind its name, and the name of what is ours.
_TYPES = """
char16 char32 clock intmax intptr max_align off pid ptrdiff size ssize time uintmax uintptr wchar
nullptr tinyai
"""

# Macros of compilers that are told no standard, of complex.h, and of stdint.h and limits.h.
_MACROS = "linux unix i386 arm mips sparc sun vax NULL EOF NAN INFINITY I BUFSIZ"

_NAMES = frozenset(" ".join((_WORDS, _LIBRARY, _HEADERS, _TYPES, _MACROS)).split())
_FORMS = re.compile(
    r"_.*"  # at file scope they are the compiler's
    r"|.*_t"  # types, by POSIX
    r"|u?int(_least|_fast)?\d+"  # with "_t" behind them
    r"|TINYAI_.*"
    r"|[A-Z0-9]+(_[A-Z]+)?_(MAX|MIN|C)"
)


def is_reserved(name: str) -> bool:
    """Whether C or what comes with it may have a name already."""
    return name in _NAMES or _FORMS.fullmatch(name) is not None
