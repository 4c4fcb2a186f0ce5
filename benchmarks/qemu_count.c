/* A plugin of QEMU (API of 7.2): how many instructions each function of the emulated program runs, and
 * how many of them are among some. Arguments: any number of is=MASK:VALUE in hexadecimal, of which an
 * instruction's word fits one. Lines "instructions fitting function" go to QEMU's log at the end. For
 * programs and machines of one thread. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define MOST 16384
#define PUBLIC __attribute__((visibility("default")))
struct tb;
struct insn;
extern size_t qemu_plugin_tb_n_insns(const struct tb *);
extern struct insn *qemu_plugin_tb_get_insn(const struct tb *, size_t);
extern const char *qemu_plugin_insn_symbol(const struct insn *);
extern const void *qemu_plugin_insn_data(const struct insn *);
extern size_t qemu_plugin_insn_size(const struct insn *);
extern void qemu_plugin_register_vcpu_insn_exec_inline(struct insn *, int, void *, uint64_t);
extern void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t, void (*)(uint64_t, struct tb *));
extern void qemu_plugin_register_atexit_cb(uint64_t, void (*)(uint64_t, void *), void *);
extern void qemu_plugin_outs(const char *);
static struct { char *name; uint64_t all, fitting; } functions[MOST];
static struct { uint32_t mask, value; } wanted[MOST];
static int function_count, wanted_count;

static int function_of(const char *name) {
    for (int i = function_count; i-- > 0;) if (strcmp(functions[i].name, name) == 0) return i;
    if (function_count == MOST) abort();
    functions[function_count].name = strdup(name);
    return function_count++;
}

static void translated(uint64_t id, struct tb *tb) {
    for (size_t i = 0; i < qemu_plugin_tb_n_insns(tb); ++i) {
        struct insn *const insn = qemu_plugin_tb_get_insn(tb, i);
        const char *const symbol = qemu_plugin_insn_symbol(insn);
        const int of = function_of(symbol && *symbol ? symbol : "?");
        uint32_t word = 0;
        memcpy(&word, qemu_plugin_insn_data(insn), qemu_plugin_insn_size(insn) < 4 ? 2 : 4);
        qemu_plugin_register_vcpu_insn_exec_inline(insn, 0, &functions[of].all, 1);
        for (int n = 0; n < wanted_count; ++n) {
            if ((word & wanted[n].mask) == wanted[n].value) {
                qemu_plugin_register_vcpu_insn_exec_inline(insn, 0, &functions[of].fitting, 1);
                break;
            }
        }
    }
    (void)id;
}

static void ended(uint64_t id, void *unused) {
    for (int i = 0; i < function_count; ++i) {
        char line[64];
        snprintf(line, sizeof(line), "%" PRIu64 " %" PRIu64 " ", functions[i].all, functions[i].fitting);
        qemu_plugin_outs(line), qemu_plugin_outs(functions[i].name), qemu_plugin_outs("\n");
    }
    (void)id, (void)unused;
}

PUBLIC extern int qemu_plugin_version;
int qemu_plugin_version = 1;
PUBLIC int qemu_plugin_install(uint64_t id, const void *info, int count, char **arguments);
int qemu_plugin_install(uint64_t id, const void *info, int count, char **arguments) {
    for (int i = 0; i < count; ++i) {
        if (sscanf(arguments[i], "is=%" SCNx32 ":%" SCNx32, &wanted[i].mask, &wanted[i].value) != 2) {
            fprintf(stderr, "expected is=MASK:VALUE, found %s\n", arguments[i]);
            return 1;
        }
    }
    wanted_count = count;
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    qemu_plugin_register_atexit_cb(id, ended, NULL);
    (void)info;
    return 0;
}
