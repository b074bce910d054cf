import threading,sys
from tensorbus.executors.source_lowering import SizedDialectExecutable as S
# deterministic: the second caller comes between "is not None" and the call
x=None
class Flag:
    def __bool__(self):
        if self.on:
            self.on=False
            t=threading.Thread(target=x,args=([],)); t.start(); t.join()
        return True
    on=True
x=S(object(), {}, lambda v: v, [], lambda: (lambda v: v))
x._has_run=Flag()
try: print(x([]))
except TypeError as e: print('TypeError',e)
